/* test_gpu.c - whole jobs on a GPU, or on its stand-in: against the CPU, and
 * with what is offloaded against what is not.
 *
 *   test_gpu parity | offload | worlds | resume
 *   test_gpu products     on the stand-in only, which counts
 *
 * The stand-in's device addresses are no addresses of the host: that a job runs
 * at all shows that the host touches no device memory. */
#include "base/fs.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"
#include "tests/support/job_threads.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = 16 };

/* A short run of a fixture; `sets` after those that all have. */
static bool runs(
        const char *fixture, const char *backend, const char *const *sets,
        int world, const char *dir)
{
    char path[128], device[64];
    const char *all[SETS] = {
            device,
            "train.max_steps=2",
            "train.global_batch_size=4",
            "optim.warmup_steps=0",
            "control.socket=none",
    };
    int count = 5;
    snprintf(path, sizeof path, "tests/fixtures/%s/job.toml", fixture);
    snprintf(device, sizeof device, "device.backend=%s", backend);
    for (; sets && *sets && count < SETS - 1; sets++)
        all[count++] = *sets;
    enum zd_status status = job_threads_run(path, all, world, dir);
    if (status != ZD_OK && status != ZD_ERR_STOPPED)
        zd_error_print(stderr, zd_error_get());
    return status == ZD_OK || status == ZD_ERR_STOPPED;
}

/* The largest relative difference of a column of two runs. */
static double difference(const char *a, const char *b, const char *key)
{
    double *x, *y, worst = 0;
    int count = job_threads_column(a, key, &x);
    if (job_threads_column(b, key, &y) != count || !count)
        worst = INFINITY;
    for (int i = 0; i < count && worst < INFINITY; i++) {
        double d = fabs(x[i] - y[i]) / fabs(x[i]);
        worst = !(d <= worst) ? (isnan(d) ? INFINITY : d) : worst;
    }
    free(x);
    free(y);
    return worst;
}

/* The fixtures' own tolerances: 1e-5 in fp32, 1 % of a loss in bf16. */
static void compare(
        const char *fixture, const char *const *sets, int world, double loss,
        double norm, const char *what)
{
    const char *cpu = job_threads_dir(), *gpu = job_threads_dir();
    bool ran = runs(fixture, "cpu", sets, world, cpu) &&
               runs(fixture, "cuda", sets, world, gpu);
    double of_loss = ran ? difference(cpu, gpu, "loss") : INFINITY;
    double of_norm = ran ? difference(cpu, gpu, "grad_norm") : INFINITY;
    tap_ok(of_loss <= loss && of_norm <= norm,
           "%s, %s: loss %.2g and norm %.2g from the CPU's", fixture, what,
           of_loss, of_norm);
    fs_remove_tree(cpu);
    fs_remove_tree(gpu);
}

static void test_parity(void)
{
    static const char *const fixtures[] = {"gpt2", "llama_odd", "qwen3"};
    static const char *const bf16[] = {"train.dtype=bf16", NULL};
    static const char *const full[] = {
            "train.gradient_checkpointing=full", "eval.eval_strategy=no", NULL};
    for (int f = 0; f < 3; f++) {
        compare(fixtures[f], NULL, 1, 1e-5, 1e-4, "fp32");
        compare(fixtures[f], bf16, 1, 1e-2, 5e-2, "bf16");
    }
    compare("llama", full, 1, 1e-5, 1e-4, "fp32, recomputed");
}

/* The same job with and without something on the host ends in the same bits. */
static void test_offload(void)
{
    static const char *const cases[][6] = {
            {"offload.optimizer=cpu"},
            {"offload.optimizer=cpu", "offload.params=cpu"},
            {"train.gradient_checkpointing=full", "offload.activations=cpu"},
            {"optim.name=paged_adamw"},
    };
    const char *plain = job_threads_dir();
    tap_ok(runs("llama", "cuda", NULL, 1, plain), "nothing offloaded runs");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *dir = job_threads_dir();
        bool ran = runs("llama", "cuda", cases[i], 1, dir);
        tap_ok(ran && same_column(plain, dir, "loss", 2) &&
                       same_column(plain, dir, "grad_norm", 2) &&
                       same_model(plain, dir),
               "%s%s%s: the same bits", cases[i][0], cases[i][1] ? ", " : "",
               cases[i][1] ? cases[i][1] : "");
        fs_remove_tree(dir);
    }
    fs_remove_tree(plain);
}

/* Ranks that share a GPU: their collectives go through the host. */
static void test_worlds(void)
{
    for (int stage = 0; stage <= 3; stage++) {
        char set[32], what[32];
        const char *sets[] = {set, NULL};
        snprintf(set, sizeof set, "zero.stage=%d", stage);
        snprintf(what, sizeof what, "2 ranks, stage %d", stage);
        compare("llama", sets, 2, 1e-5, 1e-4, what);
    }
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
        tap_ok(loss <= 1e-5, "from the %s to the other: loss %.2g",
               first ? "GPU" : "CPU", loss);
        fs_remove_tree(dir);
    }
    fs_remove_tree(whole);
}

/* Products of the stand-in for cuBLASLt since the process began; 0 before it
 * was opened, and where it is NVIDIA's. */
static uint64_t products(void)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    cublaslt_standin_counters_fn *counters =
            library ? dlsym(library, "cublaslt_standin_counters") : NULL;
    return counters ? counters().products : 0;
}

/* One micro-batch, through a head in one chunk (3 products) and two layers. */
static void expect_products(
        const char *fixture, const char *set, int of_layer, const char *what)
{
    const char *sets[] = {
            "train.max_steps=1",
            "train.global_batch_size=2",
            "train.per_device_train_batch_size=2",
            "train.gradient_checkpointing=none",
            "eval.eval_strategy=no",
            "control.socket=none",
            set,
            NULL};
    const char *dir = job_threads_dir();
    uint64_t before = products();
    bool ran = runs(fixture, "cuda", sets, 1, dir);
    int count = (int)(products() - before);
    tap_ok(ran && count == 3 + 2 * of_layer, "%s: %s, %d products in all",
           fixture, what, count);
    fs_remove_tree(dir);
}

/* qkv, o, gate|up, down: forward, and for the gradients of inputs and of
 * weights. */
static void test_products(void)
{
    static const char *const fixtures[] = {"llama", "mistral", "qwen3"};
    for (int f = 0; f < 3; f++)
        expect_products(fixtures[f], NULL, 12, "q, k, v and gate, up as one");
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
    else if (strcmp(part, "offload") == 0)
        test_offload();
    else if (strcmp(part, "worlds") == 0)
        test_worlds();
    else if (strcmp(part, "products") == 0)
        test_products();
    else
        test_resume();
    return tap_done();
}
