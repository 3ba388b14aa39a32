/* test_gpu_launches.c - what a step queues on a GPU: kernels and products, of a
 * layer and micro-batch, of a micro-batch, of a layer and step. They are
 * counted by the stand-ins at several depths and counts of micro-batches, and
 * docs/measured/gpu.md must have them as rows of a table. */
#include "base/file/fs.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/cuda/stand_in/stand_in.h"
#include "tests/support/job_threads.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a step has queued. */
struct queued {
    int kernels, products;
};

static struct queued total(void)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    cublaslt_standin_counters_fn *products =
            library ? dlsym(library, "cublaslt_standin_counters") : NULL;
    return (struct queued){
            (int)zd_standin_counters().launches,
            products ? (int)products().products : 0};
}

/* Tensors are multiples of 256 elements, as those of useful models are. */
static void job_write(const char *path, const char *family, bool adapted)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fprintf(file, "schema = 1\n[model.config]\nmodel_type = \"%s\"\n", family);
    if (strcmp(family, "gpt2") == 0)
        fputs("n_embd = 64\nn_layer = 2\nn_head = 4\nn_positions = 64\n", file);
    else
        fputs("hidden_size = 64\nintermediate_size = 128\n"
              "num_hidden_layers = 2\nnum_attention_heads = 4\nhead_dim = 16\n"
              "num_key_value_heads = 2\nmax_position_embeddings = 64\n",
              file);
    fputs("vocab_size = 512\n[data]\ncutoff_len = 8\n[[data.train]]\n"
          "path = \"tests/fixtures/llama_odd/data.bin\"\n"
          "format = \"nanogpt\"\n"
          "[train]\ndtype = \"bf16\"\n"
          "per_device_train_batch_size = 2\n"
          "[optim]\nwarmup_steps = 0\n[eval]\neval_strategy = \"no\"\n"
          "[checkpoint]\nsave_strategy = \"no\"\nexport = \"none\"\n",
          file);
    if (adapted)
        fputs("[lora]\nenabled = true\nr = 16\nlora_dropout = 0.0\n"
              "target_modules = \"all-linear\"\n",
              file);
    fclose(file);
}

static struct queued of_run(
        const char *family, bool adapted, int layers, int micro_batches,
        int steps, bool *ran)
{
    char path[256], depth[64], batch[64], count[64];
    const char *dir = job_threads_dir();
    const char *sets[] = {"device.backend=cuda",
                          "control.socket=none",
                          depth,
                          batch,
                          count,
                          NULL};
    struct queued before = total();
    ZD_PRINT(path, "%s/job.toml", dir);
    job_write(path, family, adapted);
    ZD_PRINT(
            depth, "model.config.%s=%d",
            strcmp(family, "gpt2") == 0 ? "n_layer" : "num_hidden_layers",
            layers);
    ZD_PRINT(batch, "train.global_batch_size=%d", 2 * micro_batches);
    ZD_PRINT(count, "train.max_steps=%d", steps);
    if (job_threads_run(path, sets, 1, dir) != ZD_OK)
        zd_error_print(stderr, zd_error_get()), *ran = false;
    struct queued after = total();
    fs_remove_tree(dir);
    return (struct queued){
            after.kernels - before.kernels, after.products - before.products};
}

/* Of a model: a step of one, two and three micro-batches. */
struct steps {
    struct queued of[4];
};

/* The start of a run is what one step has more than the second adds. */
static struct steps steps_of(
        const char *family, bool adapted, int layers, bool *ran)
{
    struct steps steps = {{{0, 0}}};
    struct queued first = of_run(family, adapted, layers, 2, 1, ran);
    struct queued both = of_run(family, adapted, layers, 2, 2, ran);
    for (int m = 1; m <= 3; m++) {
        struct queued run =
                m == 2 ? first : of_run(family, adapted, layers, m, 1, ran);
        steps.of[m].kernels = run.kernels - 2 * first.kernels + both.kernels;
        steps.of[m].products =
                run.products - 2 * first.products + both.products;
    }
    return steps;
}

static bool page_has(const char *line)
{
    static char page[1 << 17];
    FILE *file = fopen("docs/measured/gpu.md", "r");
    size_t bytes = file ? fread(page, 1, sizeof page - 1, file) : 0;
    if (file)
        fclose(file);
    page[bytes] = '\0';
    return strstr(page, line) != NULL;
}

/* Of several micro-batches, which are added up in fp32; and of one. */
static void expect_row(const char *family, bool adapted, const char *name)
{
    enum { LAYERS = 2 }; /* and twice as many */
    char line[160];
    bool ran = true;
    struct steps few = steps_of(family, adapted, LAYERS, &ran);
    struct steps many = steps_of(family, adapted, 2 * LAYERS, &ran);
    struct queued layer[4]; /* of a layer, in a step */
    for (int m = 1; m <= 3; m++) {
        layer[m].kernels = (many.of[m].kernels - few.of[m].kernels) / LAYERS;
        layer[m].products = (many.of[m].products - few.of[m].products) / LAYERS;
    }
    int each = layer[3].kernels - layer[2].kernels;
    int micro = few.of[3].kernels - few.of[2].kernels - LAYERS * each;
    ZD_PRINT(
            line,
            "| %s | %d kernels, %d matmuls | %d | %d | %d kernels, %d "
            "matmuls |\n",
            name, each, layer[3].products - layer[2].products, micro,
            layer[2].kernels - 2 * each, layer[1].kernels, layer[1].products);
    tap_ok(ran && page_has(line), "%s: docs/measured/gpu.md has %.*s", name,
           (int)strlen(line) - 1, line);
}

int main(void)
{
    expect_row("gpt2", false, "GPT-2");
    expect_row("llama", false, "Llama");
    expect_row("llama", true, "Llama, 7 adapters a layer");
    expect_row("qwen3", false, "Qwen3");
    return tap_done();
}
