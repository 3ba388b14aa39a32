/* test_gpu.c - whole jobs on a GPU, or on its stand-in: against the CPU, and
 * with what is offloaded against what is not.
 *
 *   test_gpu parity | parity_all | offload | worlds | resume | adapters
 *   test_gpu products     on the stand-in only, which counts; and TF32
 *   test_gpu races        what moves beside the kernels, for a thread sanitizer
 *
 * The stand-in's device addresses are no addresses of the host: that a job runs
 * at all shows that the host touches no device memory. */
#include "base/file/fs.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/support/job_threads.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Gradients are infinite at the first scale, and again when it has grown. */
#define OVERFLOWS_ONCE "train.dtype=fp16 train.fp16.initial_scale_power=22 "
#define OVERFLOWS      OVERFLOWS_ONCE "train.fp16.loss_scale_window=3"
#define TWO_STEPS                                                              \
    "train.max_steps=2 train.global_batch_size=4 optim.warmup_steps=0 "

/* A run of a fixture, or of a job file. */
static bool runs(
        const char *fixture, const char *backend, const char *sets,
        const char *more, int world, const char *dir)
{
    char path[128];
    ZD_PRINT(
            path, strchr(fixture, '/') ? "%s" : "tests/fixtures/%s/job.toml",
            fixture);
    bool ran = job_runs(
            path, dir, world, "device.backend=%s control.socket=none %s %s",
            backend, sets, more);
    if (!ran)
        zd_error_print(stderr, zd_error_get());
    return ran;
}

/* A run on the GPU against the same on the CPU: `rows` losses and norms, within
 * the largest relative differences allowed. */
static void compare(
        const char *fixture, const char *sets, const char *more, int world,
        int rows, double loss, double norm)
{
    const char *cpu = job_threads_dir(), *gpu = job_threads_dir();
    bool ran = runs(fixture, "cpu", sets, more, world, cpu) &&
               runs(fixture, "cuda", sets, more, world, gpu);
    double of_loss = column_difference(cpu, gpu, "loss");
    double of_norm = column_difference(cpu, gpu, "grad_norm");
    double *losses = NULL;
    int skipped = rows_of(gpu, "skipped");
    bool overflows = strstr(more, "fp16") != NULL;
    bool as_asked = !overflows ||
                    (skipped > 0 && same_column(cpu, gpu, "loss_scale", 0) &&
                     skipped == rows_of(cpu, "skipped"));
    int count = job_threads_column(gpu, "loss", &losses);
    tap_ok(ran && of_loss <= loss && of_norm <= norm && count == rows &&
                   as_asked,
           "%s, world %d, %s: %d losses within %.2g and norms within %.2g of "
           "the CPU's, %d steps skipped",
           fixture, world, more, count, of_loss, of_norm, skipped);
    free(losses);
    fs_remove_tree(cpu);
    fs_remove_tree(gpu);
}

/* The fixtures' own tolerances: 1e-5 of a loss in fp32, 1 % in 16 bits. */
static void compare_type(const char *fixture, int type, const char *sets)
{
    static const char *const types[] = {
            "train.dtype=fp32", "train.dtype=bf16", OVERFLOWS};
    /* at the grown scale its 16th gradient is fp16's largest number, or one
     * rounding more: on an H200 it is finite, on the CPU it is not */
    bool is_close = type == 2 && strcmp(fixture, "qwen3_yarn") == 0;
    compare(fixture, sets, is_close ? OVERFLOWS_ONCE : types[type], 1, 20,
            type ? 1e-2 : 1e-5, type ? 1e-1 : 1e-4);
}

static void compare_two_steps(const char *fixture, const char *sets, int world)
{
    bool is_wide = !strstr(sets, "bf16");
    compare(fixture, TWO_STEPS, sets, world, 2, is_wide ? 1e-5 : 1e-2,
            is_wide ? 1e-4 : 1e-1);
}

static const char *const fixtures[] = {
        "gpt2", "llama", "llama_odd", "mistral", "qwen2", "qwen3",
        /* whole only where all are tried */
        "gemma", "gemma2", "gemma3", "gemma3_text", "glm4", "granite",
        "ministral3", "mistral_window", "olmo2", "phi3", "qwen3_yarn",
        "smollm3"};
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0], WHOLE = 6 };
/* Twenty steps of a fixture in fp32 and in a type of 16 bits. */
static void test_parity(void)
{
    for (int f = 0; f < WHOLE; f++) {
        compare_type(fixtures[f], 0, "train.global_batch_size=1");
        compare_type(fixtures[f], 1 + f % 2, "train.global_batch_size=1");
    }
}

/* Their own jobs, in every type. */
static void test_parity_all(void)
{
    for (int f = 0; f < FIXTURES; f++)
        for (int type = 0; type < 3; type++)
            compare_type(fixtures[f], type, "");
}

/* --- the rows of gpu_runs.txt ----------------------------------------------
 */

/* A run, and others of the same that keep something elsewhere. */
struct offload_group {
    char fixture[80], base[512];
    int world;
    const char *plain; /* the folder of the run */
};

static void begin_group(struct offload_group *group)
{
    group->plain = job_threads_dir();
    bool ran =
            runs(group->fixture, "cuda", TWO_STEPS, group->base, group->world,
                 group->plain);
    bool overflows = strstr(group->base, "fp16") != NULL;
    tap_ok(ran && (rows_of(group->plain, "skipped") > 0) == overflows,
           "%s, %s: nothing offloaded runs", group->fixture, group->base);
}

/* The same job ends in the same bits. */
static void try_offloaded(const struct offload_group *group, const char *sets)
{
    char all[512], more[1200];
    const char *dir = job_threads_dir(), *disk = strstr(sets, "DISK");
    ZD_PRINT(
            all, "%.*s%s%s", disk ? (int)(disk - sets) : 512, sets,
            disk ? group->plain : "", disk ? disk + strlen("DISK") : "");
    ZD_PRINT(more, "%s %s", group->base, all);
    bool ran = runs(group->fixture, "cuda", TWO_STEPS, more, group->world, dir);
    tap_ok(ran && same_column(group->plain, dir, "loss", 0) &&
                   column_difference(group->plain, dir, "grad_norm") == 0 &&
                   same_model(group->plain, dir),
           "%s, %s: the same bits", group->fixture, sets);
    fs_remove_tree(dir);
}

static void test_rows(const char *part)
{
    bool keeps = strcmp(part, "offload") == 0 || strcmp(part, "races") == 0;
    bool is_of_part = false;
    char line[1024], name[40];
    struct offload_group group = {.world = 1};
    FILE *file = fopen("tests/train/gpu_runs.txt", "re");
    while (file && fgets(line, sizeof line, file)) {
        int used = 0;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '[') {
            sscanf(line, "[%39[a-z]] %79s %d%n", name, group.fixture,
                   &group.world, &used);
            ZD_PRINT(group.base, "%s", line + used + strspn(line + used, " "));
            is_of_part = strcmp(name, part) == 0;
            if (is_of_part && keeps)
                begin_group(&group);
            else if (is_of_part)
                compare_two_steps(group.fixture, group.base, group.world);
        } else if (is_of_part && line[0] == '=') {
            try_offloaded(&group, line + 2);
        }
    }
    tap_ok(file != NULL, "there are rows");
    if (file)
        fclose(file);
}

/* Saved by so many ranks, read by so many others. */
static void test_resume_worlds(void)
{
    static const char *const stops[] = {
            "run.stop_after=1", "run.stop_after=2", ""};
    static const char twelve[] = "train.max_steps=4 train.global_batch_size=12 "
                                 "optim.warmup_steps=0 zero.stage=3";
    static const int worlds[] = {1, 4, 3};
    const char *alone = job_threads_dir(), *dir = job_threads_dir();
    bool ran = runs("llama", "cpu", twelve, "", 1, alone);
    for (int i = 0; i < 3; i++)
        ran = ran && runs("llama", "cuda", twelve, stops[i], worlds[i], dir);
    double loss = column_difference(alone, dir, "loss");
    tap_ok(ran && loss <= 1e-5, "1, then 4, then 3 ranks: loss %.2g", loss);
    fs_remove_tree(alone);
    fs_remove_tree(dir);
}

/* The algorithms that timing chose, for who goes on (test_matmul_timing.c). */
static bool has_products(const char *dir, int step)
{
    json_auto_t *manifest = job_manifest(dir, step);
    const char *text = json_string_at(manifest, "products");
    return text && strncmp(text, "zerod products ", 15) == 0 &&
           strstr(text, "\ncuBLASLt ");
}

/* A checkpoint belongs to no device. */
static void test_resume(void)
{
    const char *whole = job_threads_dir();
    tap_ok(runs("llama", "cpu", TWO_STEPS, "", 1, whole), "the CPU alone");
    for (int first = 0; first < 2; first++) {
        const char *dir = job_threads_dir();
        bool ran = runs("llama", first ? "cuda" : "cpu", TWO_STEPS,
                        "run.stop_after=1", 1, dir) &&
                   runs("llama", first ? "cpu" : "cuda", TWO_STEPS, "", 1, dir);
        double loss = column_difference(whole, dir, "loss");
        tap_ok(has_products(dir, 1) == (first == 1),
               "products are in a GPU's checkpoint alone");
        tap_ok(ran && loss <= 1e-5, "from the %s to the other: loss %.2g",
               first ? "GPU" : "CPU", loss);
        fs_remove_tree(dir);
    }
    fs_remove_tree(whole);
    test_resume_worlds();
}

/* Of the stand-in for cuBLASLt since the process began; nothing before it was
 * opened, and where it is NVIDIA's. */
static struct cublaslt_standin_counters counted(void)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    cublaslt_standin_counters_fn *counters =
            library ? dlsym(library, "cublaslt_standin_counters") : NULL;
    return counters ? counters() : (struct cublaslt_standin_counters){0};
}

/* One micro-batch. */
static bool runs_once(const char *fixture, const char *set)
{
    const char *dir = job_threads_dir();
    bool ran =
            runs(fixture, "cuda",
                 "optim.warmup_steps=0 train.max_steps=1 "
                 "train.global_batch_size=2 "
                 "train.per_device_train_batch_size=2 "
                 "train.gradient_checkpointing=none eval.eval_strategy=no",
                 set, 1, dir);
    fs_remove_tree(dir);
    return ran;
}

/* Through a head in one chunk (3 products) and two layers. */
static void expect_products(
        const char *fixture, const char *set, int of_layer, const char *what)
{
    uint64_t before = counted().products;
    bool ran = runs_once(fixture, set);
    int count = (int)(counted().products - before);
    tap_ok(ran && count == 3 + 2 * of_layer, "%s: %s, %d products in all",
           fixture, what, count);
}

/* All products of fp32 are in TF32 when the job says so, and no other. */
static void test_tf32(void)
{
    static const struct {
        const char *set, *what;
        bool is_tf32;
    } jobs[] = {
            {"train.tf32=true", "fp32 with train.tf32", true},
            {"", "fp32 without", false},
            {"train.tf32=true train.dtype=bf16", "bf16 with it", false},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct cublaslt_standin_counters before = counted();
        bool ran = runs_once("llama", jobs[i].set);
        struct cublaslt_standin_counters after = counted();
        int all = (int)(after.products - before.products);
        int in_tf32 = (int)(after.in_tf32 - before.in_tf32);
        tap_ok(ran && all > 0 && in_tf32 == (jobs[i].is_tf32 ? all : 0),
               "%s: %d of %d products in TF32", jobs[i].what, in_tf32, all);
    }
}

/* qkv, o, gate|up, down: forward, and for the gradients of inputs and of
 * weights. */
static void test_products(void)
{
    static const char *const joined[] = {"llama", "mistral", "qwen3"};
    for (int f = 0; f < 3; f++)
        expect_products(joined[f], "", 12, "q, k, v and gate, up as one");
    expect_products(
            "llama", "train.freeze=[\"k_proj\"]", 17,
            "without k's gradient q, k and v are three");
    expect_products("phi3", "", 12, "q, k, v and gate, up as one in its file");
    expect_products("qwen2", "", 18, "its biases are too short for qkv");
    expect_products("llama_odd", "", 21, "no tensor ends where one begins");
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "parity";
    if (device_gpu_count(NULL) == 0) {
        printf("1..0 # SKIP no CUDA device\n");
        return 0;
    }
    if (strcmp(part, "parity") == 0)
        test_parity();
    if (strcmp(part, "parity_all") == 0)
        test_parity_all();
    else if (strcmp(part, "products") == 0)
        test_products(), test_tf32();
    else if (strcmp(part, "resume") == 0)
        test_resume();
    else
        test_rows(part);
    return tap_done();
}
