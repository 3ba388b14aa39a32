/* fuzz_weights.c - models in codes and adapters as a download may hold them,
 * opened as generation, merging and training open them. */
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/adapters/merge.h"
#include "model/adapters/peft.h"
#include "model/files/config.h"
#include "model/files/weights_hf.h"
#include "model/quantized/codes.h"
#include "tests/train/checkpoint/fuzz_files.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CONFIG_BYTES = 8192 };

/* Every tensor, whole and from its middle: equal numbers. */
static enum zd_status read_source(
        const struct weight_source *source, const struct param_table *table)
{
    enum zd_status status = ZD_OK;
    for (int id = 0; status == ZD_OK && id < table->count; id++) {
        size_t count = table->params[id].count, half = count / 2;
        ZD_FREED float *values = malloc(2 * count * sizeof *values);
        status = source->read(source->ctx, id, 0, count, values);
        if (status == ZD_OK)
            fuzz_need(
                    source->read(
                            source->ctx, id, half, count - half,
                            values + count) == ZD_OK &&
                            memcmp(values + half, values + count,
                                   (count - half) * sizeof *values) == 0,
                    "other numbers from its middle");
        for (size_t i = 0; status == ZD_OK && i < count; i++)
            fuzz_need(isfinite(values[i]), "a weight that is no number");
    }
    return status;
}

/* A weight quantized as a training holds it decodes to what is read. */
static enum zd_status read_quantized(
        const struct weight_source *source, const struct param_table *table,
        int id)
{
    struct codes_whole w;
    const struct quant_matrix *m = &table->codes[id];
    size_t rows = (size_t)m->rows, columns = (size_t)m->columns;
    ZD_TRY(codes_make_whole(source, table, id, m, &w));
    ZD_FREED float *values = malloc(rows * columns * sizeof *values);
    fuzz_need(
            source->read(source->ctx, id, 0, rows * columns, values) == ZD_OK,
            "a quantized weight that decodes to what is refused elsewhere");
    for (size_t i = 0; i < rows * columns; i++) {
        float value = quant_value(w.codes, w.scales, m, i);
        /* GPT-2's weights are stored as their transpose */
        size_t at =
                table->params[id].conv1d ? i % columns * rows + i / columns : i;
        fuzz_need(
                memcmp(&value, &values[at], sizeof value) == 0,
                "a quantized weight that decodes to other numbers than are "
                "read");
    }
    codes_whole_fini(&w);
    return ZD_OK;
}

static enum zd_status read_trained(
        const struct param_table *table, const struct weight_source *source)
{
    enum zd_status status = ZD_OK;
    for (int id = 0; status == ZD_OK && id < table->count; id++)
        if (param_is_quantized(table, id))
            status = read_quantized(source, table, id);
    return status == ZD_OK ? read_source(source, table) : status;
}

/* As a training with adapters opens a base, whose adapters begin at random or
 * with those in `path`. */
static enum zd_status train_on(
        const char *dir, const char *path, const struct model_config *config,
        struct param_table *table)
{
    struct peft_config adapter = {0};
    struct weight_source source;
    struct lora_options options = lora_options_default();
    json_auto_t *targets = json_string("all-linear");
    options.enabled = true;
    options.path = path;
    options.r = 2;
    options.target_modules = path ? NULL : targets;
    enum zd_status status = lora_config(&options, &adapter);
    ZD_THEN(status, lora_extend(config, &adapter, &options, table));
    ZD_THEN(status, lora_quantize(config, &options, dir, table));
    ZD_THEN(status, weights_open_hf(dir, config, table, NULL, &source));
    if (status == ZD_OK)
        status = weights_open_lora(config, table, &source, 1, path, &source);
    if (status == ZD_OK) {
        status = read_trained(table, &source);
        weights_close(&source);
    }
    peft_config_fini(&adapter);
    return status;
}

/* No tensor of a file that was taken goes unread. */
static void check_placed(
        const char *path, const struct model_config *config,
        const struct param_table *table)
{
    struct peft_adapter adapter;
    int placed = 0;
    fuzz_need(peft_open(path, config, table, &adapter) == ZD_OK, "an adapter");
    ZD_EACH(part, adapter.parts, table->count)
        for (int kind = 0; kind < PEFT_KINDS; kind++)
            placed += part->tensors[kind] != NULL;
    placed += config->tied &&
              st_find(adapter.file, "base_model.model.lm_head.weight");
    fuzz_need(
            placed == adapter.file->tensor_count, "tensors that no one reads");
    peft_close(&adapter);
}

/* As generation and merging open a model, and as a training does. */
static enum zd_status open_all(
        const char *dir, const char *path, struct model_config *config,
        struct param_table *table, struct param_table *trained)
{
    struct weight_source source;
    struct adapter_choice choice = {path, 1};
    ZD_TRY(model_config_read(dir, true, config));
    if (path)
        ZD_TRY(peft_extend_config(path, config));
    ZD_TRY(param_table_build(config, NULL, 0, table));
    ZD_TRY(param_table_build(config, NULL, 0, trained));
    ZD_TRY(weights_open_adapted(
            dir, config, table, &choice, path != NULL, NULL, &source));
    if (path)
        check_placed(path, config, table);
    enum zd_status status = train_on(dir, path, config, trained);
    ZD_THEN(status, read_source(&source, table));
    weights_close(&source);
    return status;
}

static void try_model(const char *dir, const char *path, bool is_changed)
{
    struct model_config config = {0};
    struct param_table table = {0}, trained = {0};
    struct rusage usage;
    enum zd_status status = open_all(dir, path, &config, &table, &trained);
    fuzz_need(status == ZD_OK || is_changed, "a sound one is refused");
    if (status != ZD_OK)
        fuzz_need_refusal(status);
    param_table_fini(&trained);
    param_table_fini(&table);
    model_config_fini(&config);
    getrusage(RUSAGE_SELF, &usage);
    fuzz_need(usage.ru_maxrss < 2 << 20, "more than 2 GiB for a small file");
}

struct download {
    const char *dir, *base;
    char config[CONFIG_BYTES];
    size_t config_bytes;
    struct fuzz_tensors tensors;
};

static void read_download(
        struct download *download, const char *config, const char *tensors)
{
    char dir[PATH_MAX], path[PATH_MAX], *text;
    fs_join(dir, sizeof dir, getenv("ZEROD_FIXTURES"), download->dir);
    fs_join(path, sizeof path, dir, config);
    fuzz_need(
            fs_read_file(
                    path, sizeof download->config, &text,
                    &download->config_bytes) == ZD_OK,
            path);
    memcpy(download->config, text, download->config_bytes);
    free(text);
    fs_join(path, sizeof path, dir, tensors);
    fuzz_tensors_read(path, &download->tensors);
}

static void try_download(
        const struct download *from, bool is_adapter, struct scratch *scratch,
        uint64_t input, uint64_t *state)
{
    static const char index[] = "{\"weight_map\":{\"a\":\"a.safetensors\","
                                "\"b\":\"b.safetensors\"}}";
    static struct fuzz_tensors tensors;
    static char config[CONFIG_BYTES];
    char base[PATH_MAX];
    size_t bytes = from->config_bytes;
    bool is_changed = input % 4 > 0;
    fuzz_tensors_begin(&tensors, &from->tensors);
    memcpy(config, from->config, bytes);
    for (uint64_t n = input % 4; n > 0; n--)
        if (fuzz_next(state) % 4 == 0)
            bytes = fuzz_mutate(config, bytes, sizeof config, state);
        else
            fuzz_tensors_change(&tensors, state);
    scratch_file(
            scratch, is_adapter ? "adapter_config.json" : "config.json", config,
            bytes);
    if (is_adapter) {
        fuzz_tensors_write(
                scratch_path(scratch, "adapter_model.safetensors"), &tensors,
                -1, is_changed ? state : NULL);
        fs_join(base, sizeof base, getenv("ZEROD_FIXTURES"), from->base);
        try_model(base, scratch->dir, is_changed);
        return;
    }
    unlink(scratch_path(scratch, "model.safetensors"));
    if (fuzz_next(state) % 2) {
        fuzz_tensors_write(
                scratch_path(scratch, "model.safetensors"), &tensors, -1,
                is_changed ? state : NULL);
    } else {
        scratch_file(
                scratch, "model.safetensors.index.json", index, strlen(index));
        fuzz_tensors_write(
                scratch_path(scratch, "a.safetensors"), &tensors, 0,
                is_changed ? state : NULL);
        fuzz_tensors_write(
                scratch_path(scratch, "b.safetensors"), &tensors, 1,
                is_changed ? state : NULL);
    }
    try_model(scratch->dir, NULL, is_changed);
}

void fuzz_download(
        bool is_adapter, struct scratch *scratch, uint64_t input,
        uint64_t *state)
{
    static struct download
            quantized[] =
                    {{.dir = "quant/nf4-nested"},
                     {.dir = "quant/gpt2-nf4"},
                     {.dir = "quant/fp4"},
                     {.dir = "quant/int8"},
                     {.dir = "quant/fp8"}},
            adapters[] = {
                    {.dir = "adapters/gpt2-dora", .base = "gpt2/model"},
                    {.dir = "adapters/qwen3-dora", .base = "qwen3/model"},
                    {.dir = "adapters/gpt2-rslora", .base = "gpt2/model"},
                    {.dir = "llama/lora", .base = "llama/model"},
                    {.dir = "adapters/llama_odd-head",
                     .base = "llama_odd/model"}};
    struct download *all = is_adapter ? adapters : quantized;
    for (int i = 0; input == 0 && i < 5; i++)
        read_download(
                &all[i], is_adapter ? "adapter_config.json" : "config.json",
                is_adapter ? "adapter_model.safetensors" : "model.safetensors");
    try_download(&all[input / 4 % 5], is_adapter, scratch, input, state);
}
