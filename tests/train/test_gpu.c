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
#include "base/file/json.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/support/job_threads.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 24 };

/* Gradients are infinite at the first scale, and again when it has grown. */
#define OVERFLOWS                                                              \
    "train.dtype=fp16", "train.fp16.initial_scale_power=22",                   \
            "train.fp16.loss_scale_window=3"

/* A run of a fixture, or of a job file; `base` and `sets` after those that all
 * have. */
static bool runs_with(
        const char *fixture, const char *backend, const char *const *base,
        const char *const *sets, int world, const char *dir)
{
    char path[128], device[64];
    const char *all[SETS] = {device, "control.socket=none"};
    int count = 2;
    if (strchr(fixture, '/'))
        snprintf(path, sizeof path, "%s", fixture);
    else
        snprintf(path, sizeof path, "tests/fixtures/%s/job.toml", fixture);
    snprintf(device, sizeof device, "device.backend=%s", backend);
    for (; base && *base && count < SETS - 1; base++)
        all[count++] = *base;
    for (; sets && *sets && count < SETS - 1; sets++)
        all[count++] = *sets;
    enum zd_status status = job_threads_run(path, all, world, dir);
    if (status != ZD_OK && status != ZD_ERR_STOPPED)
        zd_error_print(stderr, zd_error_get());
    return status == ZD_OK || status == ZD_ERR_STOPPED;
}

static const char *const two_steps[] = {
        "train.max_steps=2", "train.global_batch_size=4",
        "optim.warmup_steps=0", NULL};

static bool runs(
        const char *fixture, const char *backend, const char *const *sets,
        int world, const char *dir)
{
    return runs_with(fixture, backend, two_steps, sets, world, dir);
}

/* The largest relative difference of a column of two runs. */
static double difference(const char *a, const char *b, const char *key)
{
    double *x, *y, worst = 0;
    int count = job_threads_column(a, key, &x);
    if (job_threads_column(b, key, &y) != count || !count)
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        if (isnan(x[i]) && isnan(y[i])) /* a norm that overflowed in both */
            continue;
        double d = fabs(x[i] - y[i]) / fabs(x[i]);
        worst = !(d <= worst) ? (isnan(d) ? INFINITY : d) : worst;
    }
    free(x);
    free(y);
    return worst;
}

/* Steps whose gradients were not finite: their rows say so. */
static int skipped_steps(const char *dir)
{
    double *values;
    int count = job_threads_column(dir, "skipped", &values);
    free(values);
    return count;
}

/* A run on the GPU against the same on the CPU. */
struct comparison {
    const char *fixture, *what;
    const char *const *base, *const *sets;
    int world, rows;
    double loss, norm; /* largest relative differences allowed */
    bool overflows;    /* steps are skipped, the same ones in both */
};

static void compare(struct comparison c)
{
    const char *cpu = job_threads_dir(), *gpu = job_threads_dir();
    bool ran = runs_with(c.fixture, "cpu", c.base, c.sets, c.world, cpu) &&
               runs_with(c.fixture, "cuda", c.base, c.sets, c.world, gpu);
    double of_loss = ran ? difference(cpu, gpu, "loss") : INFINITY;
    double of_norm = ran ? difference(cpu, gpu, "grad_norm") : INFINITY;
    double *losses = NULL;
    int skipped = skipped_steps(gpu);
    int rows = ran ? job_threads_column(gpu, "loss", &losses) : 0;
    bool as_asked = !c.overflows ||
                    (skipped > 0 && same_column(cpu, gpu, "loss_scale", 0) &&
                     skipped == skipped_steps(cpu));
    tap_ok(of_loss <= c.loss && of_norm <= c.norm && rows == c.rows && as_asked,
           "%s, %s: %d losses within %.2g and norms within %.2g of the CPU's, "
           "%d steps skipped",
           c.fixture, c.what, rows, of_loss, of_norm, skipped);
    free(losses);
    fs_remove_tree(cpu);
    fs_remove_tree(gpu);
}

/* The fixtures' own tolerances: 1e-5 of a loss in fp32, 1 % in 16 bits. */
static void compare_type(const char *fixture, int type, const char *const *base)
{
    static const char *const types[][4] = {
            {"train.dtype=fp32"}, {"train.dtype=bf16"}, {OVERFLOWS}};
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    compare((struct comparison){
            .fixture = fixture,
            .what = names[type],
            .base = base,
            .sets = types[type],
            .world = 1,
            .rows = 20,
            .loss = type ? 1e-2 : 1e-5,
            .norm = type ? 1e-1 : 1e-4,
            .overflows = type == 2});
}

static const char *const fixtures[] = {"gpt2",    "llama", "llama_odd",
                                       "mistral", "qwen2", "qwen3"};
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

/* Twenty steps of every fixture in fp32 and in a type of 16 bits: small steps,
 * and once everything recomputed. */
static void test_parity(void)
{
    static const char *const small[] = {"train.global_batch_size=1", NULL};
    static const char *const full[] = {
            "train.gradient_checkpointing=full", NULL};
    for (int f = 0; f < FIXTURES; f++) {
        compare_type(fixtures[f], 0, small);
        compare_type(fixtures[f], 1 + f % 2, small);
    }
    compare((struct comparison){
            "llama", "fp32, recomputed", two_steps, full, 1, 2, 1e-5, 1e-4,
            false});
    /* q and v without k: joined, one part has no adapter; the head */
    static const char *const dora[] = {
            "lora.enabled=true",
            "lora.use_dora=true",
            "lora.r=4",
            "lora.target_modules=[\"q_proj\",\"v_proj\",\"up_proj\","
            "\"lm_head\"]",
            "optim.learning_rate=0.02",
            NULL};
    compare((struct comparison){
            "llama_odd", "DoRA", two_steps, dora, 1, 2, 1e-5, 1e-4, false});
    static const char *const gpt2[] = {
            "lora.enabled=true", "lora.use_dora=true", "lora.r=4",
            "optim.learning_rate=0.02", NULL};
    compare((struct comparison){
            "gpt2", "DoRA", two_steps, gpt2, 1, 2, 1e-5, 1e-4, false});
}

/* Their own jobs, in every type. */
static void test_parity_all(void)
{
    for (int f = 0; f < FIXTURES; f++)
        for (int type = 0; type < 3; type++)
            compare_type(fixtures[f], type, NULL);
}

/* A run, and others of the same that keep something elsewhere. */
struct offload_group {
    const char *fixture;
    const char *base[8];
    const char *cases[8][6];
    int world; /* 0: one rank */
};

/* Tensors above and below 4096 elements, no key of AdamW alone. */
#define JOB         "tests/train/states.toml"
#define STATES      "offload.optimizer=cpu"
#define DISK        "offload.optimizer=nvme", "offload.chunk_bytes=4096"
#define PARAMS      "offload.params=cpu"
#define UNDO        "offload.clipping=undo"
#define ACTIVATIONS "offload.activations=cpu"
#define RECOMPUTED  "train.gradient_checkpointing=full"
#define SELECTIVE   "train.gradient_checkpointing=selective"

static const struct offload_group offload_groups[] = {
        {"llama",
         {NULL},
         {{STATES},
          {STATES, UNDO},
          {STATES, PARAMS},
          {DISK},
          {DISK, "offload.params=nvme"},
          {RECOMPUTED, ACTIVATIONS},
          {"optim.name=paged_adamw"}}},
        {"gpt2",
         {"train.dtype=bf16", "optim.name=adamw_8bit", RECOMPUTED},
         {{STATES, PARAMS, ACTIVATIONS},
          {STATES, UNDO},
          {DISK},
          {"optim.name=paged_adamw_8bit"}}},
        {"qwen3",
         {OVERFLOWS, "optim.name=adam_mini", "train.max_steps=4", RECOMPUTED},
         {{STATES}, {STATES, PARAMS, ACTIVATIONS}, {DISK}}},
        {JOB, {"optim.name=lion"}, {{STATES, UNDO, PARAMS}, {DISK}}},
        {JOB,
         {OVERFLOWS, "optim.name=lion_8bit", "train.max_steps=4"},
         {{STATES, UNDO}, {DISK}}},
        {"llama",
         {"train.dtype=bf16", "train.max_steps=2"},
         {{SELECTIVE}, {SELECTIVE, STATES}}},
        {"gpt2", {"train.dtype=bf16", "train.max_steps=2"}, {{SELECTIVE}}},
        {"qwen3", {"train.max_steps=2"}, {{SELECTIVE}}},
};

/* NULL-terminated: all of `more` behind those of `list`. */
static void append(const char **list, const char *const *more)
{
    while (*list)
        list++;
    while (more && *more)
        *list++ = *more++;
    *list = NULL;
}

static void test_offload_group(const struct offload_group *group)
{
    char path[256];
    const char *plain = job_threads_dir();
    snprintf(path, sizeof path, "offload.nvme_path=%s", plain);
    int world = group->world ? group->world : 1;
    bool ran = runs(group->fixture, "cuda", group->base, world, plain);
    bool overflows = group->base[0] && strstr(group->base[0], "fp16");
    tap_ok(ran && (skipped_steps(plain) > 0) == overflows,
           "%s, %s: nothing offloaded runs", group->fixture,
           group->base[0] ? group->base[0] : "as it is");
    for (int i = 0; group->cases[i][0]; i++) {
        const char *sets[SETS] = {NULL}, *dir = job_threads_dir();
        const char *const where[] = {path, NULL};
        append(sets, group->base);
        append(sets, group->cases[i]);
        if (strstr(group->cases[i][0], "nvme"))
            append(sets, where);
        ran = runs(group->fixture, "cuda", sets, world, dir);
        tap_ok(ran && same_column(plain, dir, "loss", 0) &&
                       difference(plain, dir, "grad_norm") == 0 &&
                       same_model(plain, dir),
               "%s, %s %s %s: the same bits", group->fixture,
               group->cases[i][0], group->cases[i][1] ? group->cases[i][1] : "",
               group->cases[i][1] && group->cases[i][2] ? group->cases[i][2]
                                                        : "");
        fs_remove_tree(dir);
    }
    fs_remove_tree(plain);
}

/* The same job with and without something on the host ends in the same bits. */
static void test_offload(void)
{
    for (size_t i = 0; i < sizeof offload_groups / sizeof offload_groups[0];
         i++)
        test_offload_group(&offload_groups[i]);
}

/* Copies beside the kernels, in every way to have one, and threads of the host
 * that wait for some of them; alone, and two ranks that share a GPU. Short rows
 * in fp32: the emulated tensor cores are slow under a sanitizer. */
static void test_races(void)
{
    static const struct offload_group groups[] = {
            {"llama",
             {"data.cutoff_len=8", RECOMPUTED, "train.global_batch_size=3",
              "train.per_device_train_batch_size=1"},
             {{STATES, PARAMS, ACTIVATIONS},
              {STATES, UNDO},
              {DISK, "offload.params=nvme", ACTIVATIONS},
              {"optim.name=paged_adamw"}},
             1},
            {"llama",
             {"data.cutoff_len=8", RECOMPUTED, "zero.stage=3",
              "train.global_batch_size=2"},
             {{STATES, PARAMS, ACTIVATIONS}},
             2},
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        test_offload_group(&groups[i]);
}

/* Ranks that share a GPU: their collectives go through the host. */
static void test_worlds(void)
{
    for (int stage = 0; stage <= 3; stage++) {
        char set[32], what[32];
        const char *sets[] = {set, NULL};
        snprintf(set, sizeof set, "zero.stage=%d", stage);
        snprintf(what, sizeof what, "2 ranks, stage %d", stage);
        compare((struct comparison){
                "llama", what, two_steps, sets, 2, 2, 1e-5, 1e-4, false});
    }
}

/* Adapters, on a base as it is and on one in codes; ranks that gather codes,
 * and codes that come from the host. */
static void test_adapters(void)
{
    static const struct {
        const char *fixture, *base, *dtype;
        int world;
        const char *more[5];
    } cases[] = {
            {"llama", "none", "fp32", 1, {NULL}},
            {"llama", "nf4", "fp32", 1, {NULL}},
            {"qwen2", "nf4", "bf16", 1, {"train.gradient_checkpointing=full"}},
            {"llama_odd", "int8", "fp32", 2, {"zero.stage=3"}},
            {"gpt2", "fp8", "fp32", 1, {NULL}},
            {"qwen3",
             "fp4",
             "fp32",
             2,
             {"zero.stage=3", "offload.optimizer=cpu", "offload.params=cpu"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char format[40], type[24], what[80];
        const char *sets[SETS] = {
                "lora.enabled=true", "lora.r=3", "lora.lora_dropout=0.1",
                format, type};
        snprintf(format, sizeof format, "lora.quantize_base=%s", cases[i].base);
        snprintf(type, sizeof type, "train.dtype=%s", cases[i].dtype);
        for (int k = 0; k < 5 && cases[i].more[k]; k++)
            sets[5 + k] = cases[i].more[k];
        snprintf(
                what, sizeof what, "adapters, base %s, %s, world %d",
                cases[i].base, cases[i].dtype, cases[i].world);
        bool is_wide = strcmp(cases[i].dtype, "fp32") == 0;
        compare((struct comparison){
                cases[i].fixture, what, two_steps, sets, cases[i].world, 2,
                is_wide ? 1e-5 : 1e-2, is_wide ? 1e-4 : 1e-1, false});
    }
}

/* Saved by so many ranks, read by so many others. */
static void test_resume_worlds(void)
{
    static const char *const twelve[] = {
            "train.max_steps=4", "train.global_batch_size=12",
            "optim.warmup_steps=0", "zero.stage=3", NULL};
    static const char *const stops[][2] = {
            {"run.stop_after=1"}, {"run.stop_after=2"}, {NULL}};
    static const int worlds[] = {1, 4, 3};
    const char *alone = job_threads_dir(), *dir = job_threads_dir();
    bool ran = runs_with("llama", "cpu", twelve, NULL, 1, alone);
    for (int i = 0; i < 3; i++)
        ran = ran &&
              runs_with("llama", "cuda", twelve, stops[i], worlds[i], dir);
    double loss = ran ? difference(alone, dir, "loss") : INFINITY;
    tap_ok(loss <= 1e-5, "1, then 4, then 3 ranks: loss %.2g", loss);
    fs_remove_tree(alone);
    fs_remove_tree(dir);
}

/* The algorithms that timing chose, for who goes on (test_matmul_timing.c). */
static bool has_products(const char *dir, int step)
{
    char path[PATH_MAX];
    json_t *manifest;
    snprintf(
            path, sizeof path, "%s/out/checkpoint-%06d/manifest.json", dir,
            step);
    if (json_parse_file(path, 1 << 24, &manifest) != ZD_OK)
        return false;
    const char *text =
            json_string_value(json_object_get(manifest, "products"));
    bool has = text && strncmp(text, "zerod products ", 15) == 0 &&
               strstr(text, "\ncuBLASLt ");
    json_decref(manifest);
    return has;
}

/* A checkpoint belongs to no device. */
static void test_resume(void)
{
    static const char *const stop[] = {"run.stop_after=1", NULL};
    const char *whole = job_threads_dir();
    tap_ok(runs("llama", "cpu", NULL, 1, whole), "the CPU alone");
    for (int first = 0; first < 2; first++) {
        const char *dir = job_threads_dir();
        bool ran = runs("llama", first ? "cuda" : "cpu", stop, 1, dir) &&
                   runs("llama", first ? "cpu" : "cuda", NULL, 1, dir);
        double loss = ran ? difference(whole, dir, "loss") : INFINITY;
        tap_ok(has_products(dir, 1) == (first == 1),
               "products are in a GPU's checkpoint alone");
        tap_ok(loss <= 1e-5, "from the %s to the other: loss %.2g",
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

/* One micro-batch. NULL: one setting less. */
static bool runs_once(const char *fixture, const char *set, const char *more)
{
    const char *sets[] = {
            "train.max_steps=1",
            "train.global_batch_size=2",
            "train.per_device_train_batch_size=2",
            "train.gradient_checkpointing=none",
            "eval.eval_strategy=no",
            set,
            more,
            NULL};
    const char *dir = job_threads_dir();
    bool ran = runs(fixture, "cuda", sets, 1, dir);
    fs_remove_tree(dir);
    return ran;
}

/* Through a head in one chunk (3 products) and two layers. */
static void expect_products(
        const char *fixture, const char *set, int of_layer, const char *what)
{
    uint64_t before = counted().products;
    bool ran = runs_once(fixture, set, NULL);
    int count = (int)(counted().products - before);
    tap_ok(ran && count == 3 + 2 * of_layer, "%s: %s, %d products in all",
           fixture, what, count);
}

/* All products of fp32 are in TF32 when the job says so, and no other. */
static void test_tf32(void)
{
    static const struct {
        const char *set, *more, *what;
        bool is_tf32;
    } jobs[] = {
            {"train.tf32=true", NULL, "fp32 with train.tf32", true},
            {NULL, NULL, "fp32 without", false},
            {"train.tf32=true", "train.dtype=bf16", "bf16 with it", false},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        struct cublaslt_standin_counters before = counted();
        bool ran = runs_once("llama", jobs[i].set, jobs[i].more);
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
        expect_products(joined[f], NULL, 12, "q, k, v and gate, up as one");
    expect_products(
            "llama", "train.freeze=[\"k_proj\"]", 17,
            "without k's gradient q, k and v are three");
    expect_products("qwen2", NULL, 18, "its biases are too short for qkv");
    expect_products("llama_odd", NULL, 21, "no tensor ends where one begins");
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
    else if (strcmp(part, "parity_all") == 0)
        test_parity_all();
    else if (strcmp(part, "offload") == 0)
        test_offload();
    else if (strcmp(part, "adapters") == 0)
        test_adapters();
    else if (strcmp(part, "worlds") == 0)
        test_worlds();
    else if (strcmp(part, "races") == 0)
        test_races();
    else if (strcmp(part, "products") == 0)
        test_products(), test_tf32();
    else
        test_resume();
    return tap_done();
}
