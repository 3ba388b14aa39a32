/* test_matmul_cuda.c - products on a GPU against the plain definition, and how
 * their algorithms are chosen and remembered. On a stand-in of the GPU these
 * also look at what the library was asked. */
#include "arrays.h"

#include "base/clock.h"
#include "base/device_memory.h"
#include "base/fs.h"
#include "kernels/cublaslt.h"
#include "kernels/cuda_table.h"
#include "kernels/fused.h"
#include "kernels/kernels.h"
#include "kernels/matmul_cuda.h"
#include "kernels/matmul_plan_cuda.h"
#include "kernels/matmul_tuning.h"
#include "tests/cuda/cublaslt/cublaslt_standin.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct device *gpu;
static void *workspace;
static char cache[64];

static const char *failure(void)
{
    return zd_error_get()->what;
}

#define MUST(call) cr_assert_eq((call), ZD_OK, "%s", failure())

/* A GPU, a workspace, and a cache of nobody else's. */
static void begin(void)
{
    size_t bytes = matmul_cuda_workspace_bytes(DTYPE_FP32);
    if (device_gpu_count(NULL) == 0)
        cr_skip("no CUDA device");
    snprintf(cache, sizeof cache, "/tmp/zerod-products-%d", (int)getpid());
    setenv("XDG_CACHE_HOME", cache, 1);
    MUST(device_open(DEVICE_CUDA, 0, 1, &gpu));
    device_use(gpu);
    MUST(device_take(bytes, &workspace));
    kernels_set_workspace(workspace, bytes);
}

static void end(void)
{
    if (!gpu)
        return;
    cr_assert_eq(device_check(), ZD_OK, "%s", failure());
    products_close();
    device_give(workspace, matmul_cuda_workspace_bytes(DTYPE_FP32));
    device_use(NULL);
    device_close(gpu);
    fs_remove_tree(cache);
    zd_error_clear();
}

/* --- the stand-in's doors ------------------------------------------------ */

static void *standin(const char *name)
{
    const struct cublaslt *api;
    MUST(cublaslt_open(&api));
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

static bool is_standin(void)
{
    return standin("cublaslt_standin_counters") != NULL;
}

static struct cublaslt_standin_counters asked(void)
{
    return ((cublaslt_standin_counters_fn *)standin(
            "cublaslt_standin_counters"))();
}

static void let_fail(const char *failures)
{
    ((cublaslt_standin_fail_fn *)standin("cublaslt_standin_fail"))(failures);
}

/* --- one product on both ------------------------------------------------- */

/* The same array on the host and on the GPU. */
struct twin {
    void *host, *device;
    enum dtype dtype;
    size_t count;
};

static size_t twin_bytes(const struct twin *t)
{
    return t->count * dtype_bytes(t->dtype);
}

static struct twin twin(
        enum dtype dtype, size_t count, float scale, uint64_t seed)
{
    struct twin t = {.dtype = dtype, .count = count};
    t.host = random_array(dtype, count, scale, seed);
    MUST(device_take(twin_bytes(&t), &t.device));
    MUST(device_write(t.device, t.host, twin_bytes(&t)));
    return t;
}

static void twin_free(struct twin *t)
{
    if (!t->host)
        return;
    device_give(t->device, twin_bytes(t));
    free(t->host);
}

/* How far the GPU's values are from the host's. */
static double twin_error(const struct twin *t)
{
    void *copy = malloc(twin_bytes(t) + 1);
    MUST(device_read(copy, t->device, twin_bytes(t)));
    double most = worst(copy, t->host, t->dtype, t->count);
    free(copy);
    return most;
}

static void compare(struct twin *t, double tolerance, const char *what)
{
    double error = twin_error(t);
    cr_expect(
            error <= tolerance, "%s, %s: %g > %g", what, dtype_name(t->dtype),
            error, tolerance);
    twin_free(t);
}

static const double tolerances[] = {
        [DTYPE_FP32] = 2e-5, [DTYPE_BF16] = 1.6e-2, [DTYPE_FP16] = 2e-3};

struct tables {
    const struct kernels *gpu, *plain;
};

static struct tables tables_of(enum dtype dtype)
{
    struct tables t;
    MUST(kernels_cuda(dtype, &t.gpu));
    MUST(kernels_plain(dtype, &t.plain));
    return t;
}

static void check_matmul(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, bool narrow, bool with_bias)
{
    struct tables t = tables_of(dtype);
    enum dtype out_type = narrow ? dtype : DTYPE_FP32;
    float scale = 1.0f / sqrtf((float)K);
    char what[96];
    struct twin a = twin(dtype, (size_t)M * K, scale, 1);
    struct twin b = twin(dtype, (size_t)K * N, 1.0f, 2);
    struct twin bias = {0};
    struct twin out = twin(out_type, (size_t)M * N, 1.0f, 4);
    if (with_bias)
        bias = twin(dtype, (size_t)N, 1.0f, 3);
    MUST(t.plain->matmul(
            NULL, out.host, out_type, a.host, b.host, bias.host, M, N, K,
            trans_a, trans_b, accumulate));
    MUST(t.gpu->matmul(
            NULL, out.device, out_type, a.device, b.device, bias.device, M, N,
            K, trans_a, trans_b, accumulate));
    snprintf(
            what, sizeof what, "%dx%dx%d%s%s%s%s", M, N, K,
            trans_a ? " a^T" : "", trans_b ? " b^T" : "",
            accumulate ? " +=" : "", with_bias ? " bias" : "");
    compare(&out, tolerances[narrow ? dtype : DTYPE_FP32], what);
    twin_free(&a), twin_free(&b), twin_free(&bias);
}

static void check_gelu(
        enum dtype dtype, int M, int N, int K, bool trans_b, bool with_bias)
{
    struct tables t = tables_of(dtype);
    struct twin a = twin(dtype, (size_t)M * K, 3.0f / sqrtf((float)K), 1);
    struct twin b = twin(dtype, (size_t)K * N, 1.0f, 2);
    struct twin bias = {0};
    struct twin out = twin(dtype, (size_t)M * N, 1.0f, 4);
    struct twin pre = twin(dtype, (size_t)M * N, 1.0f, 5);
    if (with_bias)
        bias = twin(dtype, (size_t)N, 1.0f, 3);
    MUST(fused_matmul_gelu(
            t.plain, NULL, out.host, pre.host, a.host, b.host, bias.host, M, N,
            K, trans_b));
    MUST(fused_matmul_gelu(
            t.gpu, NULL, out.device, pre.device, a.device, b.device,
            bias.device, M, N, K, trans_b));
    compare(&out, 2 * tolerances[dtype], "gelu");
    compare(&pre, tolerances[dtype], "before gelu");
    twin_free(&a), twin_free(&b), twin_free(&bias);
}

static void check_dgelu(enum dtype dtype, int M, int N, int K, bool trans_b)
{
    struct tables t = tables_of(dtype);
    struct twin dout = twin(dtype, (size_t)M * K, 1.0f / sqrtf((float)K), 1);
    struct twin b = twin(dtype, (size_t)K * N, 1.0f, 2);
    struct twin pre = twin(dtype, (size_t)M * N, 3.0f, 3);
    struct twin dpre = twin(dtype, (size_t)M * N, 1.0f, 4);
    MUST(fused_matmul_dgelu(
            t.plain, NULL, dpre.host, dout.host, b.host, pre.host, M, N, K,
            trans_b));
    MUST(fused_matmul_dgelu(
            t.gpu, NULL, dpre.device, dout.device, b.device, pre.device, M, N,
            K, trans_b));
    compare(&dpre, 2 * tolerances[dtype], "dgelu");
    twin_free(&dout), twin_free(&b), twin_free(&pre);
}

static void check_weight_grads(
        enum dtype dtype, int rows, int columns, int tokens, bool dy_first,
        bool accumulate)
{
    struct tables t = tables_of(dtype);
    float scale = 1.0f / sqrtf((float)tokens);
    size_t biases = (size_t)(dy_first ? rows : columns);
    struct twin a = twin(dtype, (size_t)tokens * rows, scale, 1);
    struct twin b = twin(dtype, (size_t)tokens * columns, 1.0f, 2);
    struct twin dweight = twin(DTYPE_FP32, (size_t)rows * columns, 1.0f, 3);
    struct twin dbias = twin(DTYPE_FP32, biases, 1.0f, 4);
    MUST(fused_weight_grads(
            t.plain, NULL, dweight.host, dbias.host, a.host, b.host, rows,
            columns, tokens, dy_first, accumulate));
    MUST(fused_weight_grads(
            t.gpu, NULL, dweight.device, dbias.device, a.device, b.device, rows,
            columns, tokens, dy_first, accumulate));
    compare(&dweight, 2e-5, "dweight");
    compare(&dbias, 2e-5, "dbias");
    twin_free(&a), twin_free(&b);
}

static void check_fused(enum dtype dtype)
{
    /* the last has rows that the GELU epilogues do not take */
    static const int shapes[][3] = {{40, 48, 64}, {17, 136, 33}, {9, 21, 50}};
    for (int s = 0; s < 3; s++) {
        int M = shapes[s][0], N = shapes[s][1], K = shapes[s][2];
        for (int flags = 0; flags < 4; flags++) {
            check_gelu(dtype, M, N, K, flags & 1, flags & 2);
            check_dgelu(dtype, M, N, K, flags & 1);
            check_weight_grads(dtype, M, N, K, flags & 1, flags & 2);
        }
    }
}

static void check_all_products(enum dtype dtype)
{
    static const int shapes[][3] = {
            {37, 48, 509}, {1, 130, 48}, {3, 509, 37}, {64, 64, 64}, {1, 1, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int flags = 0; flags < 32; flags++)
            check_matmul(
                    dtype, shapes[s][0], shapes[s][1], shapes[s][2], flags & 1,
                    flags & 2, flags & 4, !(flags & 4) && flags & 8,
                    flags & 16);
}

/* --- values -------------------------------------------------------------- */

Test(matmul_cuda, fp32_products_are_the_plain_ones, .init = begin, .fini = end)
{
    check_all_products(DTYPE_FP32);
}

Test(matmul_cuda, bf16_products_are_the_plain_ones, .init = begin, .fini = end)
{
    check_all_products(DTYPE_BF16);
}

Test(matmul_cuda, fp16_products_are_the_plain_ones, .init = begin, .fini = end)
{
    check_all_products(DTYPE_FP16);
}

Test(matmul_cuda, fused_products_are_their_parts, .init = begin, .fini = end)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        check_fused((enum dtype)dtype);
}

/* Epilogues are in use, or the test above would prove nothing. */
Test(matmul_cuda, fused_products_are_one_call, .init = begin, .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
    check_gelu(DTYPE_BF16, 32, 64, 48, true, true);
    check_dgelu(DTYPE_BF16, 32, 64, 48, false);
    check_weight_grads(DTYPE_BF16, 32, 64, 48, true, true);
    cr_assert_eq(asked().products, 3);
    cr_assert_eq(asked().with_epilogue, 3);
}

Test(matmul_cuda, a_place_at_an_odd_address_is_served, .init = begin,
     .fini = end)
{
    struct tables t = tables_of(DTYPE_BF16);
    enum { M = 24, N = 40, K = 32 };
    struct twin a = twin(DTYPE_BF16, M * K + 1, 0.2f, 1);
    struct twin b = twin(DTYPE_BF16, K * N + 1, 1.0f, 2);
    struct twin out = twin(DTYPE_BF16, M * N + 1, 1.0f, 3);
    struct twin pre = twin(DTYPE_BF16, M * N + 1, 1.0f, 4);
#define FROM_1(array) ((uint16_t *)(array) + 1)
    MUST(fused_matmul_gelu(
            t.plain, NULL, FROM_1(out.host), FROM_1(pre.host), FROM_1(a.host),
            FROM_1(b.host), NULL, M, N, K, false));
    MUST(fused_matmul_gelu(
            t.gpu, NULL, FROM_1(out.device), FROM_1(pre.device),
            FROM_1(a.device), FROM_1(b.device), NULL, M, N, K, false));
#undef FROM_1
    compare(&out, 3.2e-2, "gelu");
    compare(&pre, 1.6e-2, "before gelu");
    twin_free(&a), twin_free(&b);
}

/* --- what the library refuses -------------------------------------------- */

static void check_some(void)
{
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (int flags = 0; flags < 32; flags += 3)
            check_matmul(
                    (enum dtype)dtype, 70, 67, 37, flags & 1, flags & 2,
                    flags & 4, !(flags & 4) && flags & 8, flags & 16);
    check_gelu(DTYPE_BF16, 9, 24, 33, true, true);
    check_dgelu(DTYPE_BF16, 9, 24, 33, false);
    check_weight_grads(DTYPE_BF16, 9, 24, 33, true, true);
    check_weight_grads(DTYPE_BF16, 9, 24, 33, false, false);
}

Test(matmul_cuda, our_own_kernel_takes_what_the_heuristic_does_not_know,
     .init = begin, .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("empty");
    check_some();
    cr_assert_eq(asked().products, 0);
    cr_assert_gt(product_counters().refused, 0);
}

Test(matmul_cuda, our_own_kernel_takes_what_is_refused_at_the_call,
     .init = begin, .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("refuse");
    check_some();
    cr_assert_eq(asked().products, 0);
}

Test(matmul_cuda, missing_epilogues_are_composed, .init = begin, .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail("no_bgrad,no_gelu");
    check_fused(DTYPE_BF16);
    cr_assert_gt(asked().products, 0);
}

Test(matmul_cuda, a_product_that_fails_is_an_error, .init = begin, .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    struct tables t = tables_of(DTYPE_FP32);
    struct twin x = twin(DTYPE_FP32, 64, 1.0f, 1);
    struct twin out = twin(DTYPE_FP32, 64, 1.0f, 2);
    let_fail("fail:1");
    cr_assert_eq(
            t.gpu->matmul(
                    NULL, out.device, DTYPE_FP32, x.device, x.device, NULL, 8,
                    8, 8, false, false, false),
            ZD_ERR_DEVICE);
    cr_assert_str_eq(zd_error_get()->code, "E1222");
    cr_assert(strstr(failure(), "CUBLAS_STATUS_EXECUTION_FAILED"));
    zd_error_clear();
    twin_free(&x), twin_free(&out);
}

Test(matmul_cuda, without_the_library_there_is_a_fix)
{
    const struct kernels *table;
    setenv("ZEROD_CUBLASLT", "/nowhere/libcublasLt.so.13", 1);
    cr_assert_eq(kernels_cuda(DTYPE_BF16, &table), ZD_ERR_UNFIT);
    cr_assert_str_eq(zd_error_get()->code, "E1220");
    cr_assert(strstr(failure(), "/nowhere/libcublasLt.so.13"));
    cr_assert(strstr(zd_error_get()->help, "device.backend"));
}

Test(matmul_cuda, a_library_without_our_functions_is_named)
{
    const struct kernels *table;
    setenv("ZEROD_CUBLASLT", "libm.so.6", 1);
    cr_assert_eq(kernels_cuda(DTYPE_BF16, &table), ZD_ERR_UNFIT);
    cr_assert_str_eq(zd_error_get()->code, "E1221");
}

/* The one thing that NVIDIA's own library does without a GPU. */
Test(matmul_cuda, the_library_takes_our_descriptors)
{
    struct plan_table table = {0};
    if (cublaslt_open(&table.api) != ZD_OK) {
        zd_error_clear();
        cr_skip("no cuBLASLt");
    }
    for (int epilogue = PRODUCT_PLAIN; epilogue <= PRODUCT_BGRADB; epilogue++)
        for (int dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++) {
            struct plan plan = {0};
            plan.product = (struct product){
                    .m = 64,
                    .n = 32,
                    .k = 16,
                    .sm_target = 100 * (dtype == DTYPE_BF16),
                    .dtype = (uint8_t)dtype,
                    .out_type = (uint8_t)dtype,
                    .trans_a = epilogue & 1,
                    .epilogue = (uint8_t)epilogue,
                    .alignment = 16,
                    .tf32 = dtype == DTYPE_FP32,
            };
            MUST(plan_describe(&table, &plan));
            plan_clear(&table, &plan);
        }
}

/* --- settings ------------------------------------------------------------ */

Test(matmul_cuda, collectives_are_left_their_multiprocessors, .init = begin,
     .fini = end)
{
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
    products_set_sm_target(100);
    check_matmul(DTYPE_BF16, 64, 64, 64, false, false, false, true, false);
    cr_assert_eq(asked().sm_target, 100);
    products_set_sm_target(0);
    check_matmul(DTYPE_BF16, 64, 64, 64, false, false, false, true, false);
    cr_assert_eq(asked().sm_target, 0);
    cr_assert_eq(product_counters().plans, 2);
}

/* The error of one fp32 product, with TF32 or not. */
static double fp32_error(bool tf32)
{
    struct tables t = tables_of(DTYPE_FP32);
    enum { SIDE = 64 };
    struct twin a = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 1);
    struct twin b = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 2);
    struct twin out = twin(DTYPE_FP32, SIDE * SIDE, 1.0f, 3);
    products_set_tf32(tf32);
    MUST(t.plain->matmul(
            NULL, out.host, DTYPE_FP32, a.host, b.host, NULL, SIDE, SIDE, SIDE,
            false, false, false));
    MUST(t.gpu->matmul(
            NULL, out.device, DTYPE_FP32, a.device, b.device, NULL, SIDE, SIDE,
            SIDE, false, false, false));
    double error = twin_error(&out);
    twin_free(&a), twin_free(&b), twin_free(&out);
    return error;
}

Test(matmul_cuda, tf32_is_asked_for, .init = begin, .fini = end)
{
    cr_assert_lt(fp32_error(false), 1e-5);
    double error = fp32_error(true);
    cr_assert_lt(error, 1e-2);
    cr_assert_gt(error, 1e-4);
}

/* --- timing and its file ------------------------------------------------- */

/* Products of several kinds, twice each; returns how many. */
static int several_products(void)
{
    for (int i = 0; i < 2; i++) {
        check_matmul(DTYPE_FP32, 96, 64, 128, false, true, true, false, false);
        check_matmul(DTYPE_BF16, 96, 64, 128, false, true, false, true, true);
        check_matmul(DTYPE_FP16, 96, 64, 128, true, false, true, false, false);
        check_weight_grads(DTYPE_BF16, 64, 32, 96, true, true);
        check_gelu(DTYPE_BF16, 64, 32, 96, true, true);
    }
    return 10;
}

static void begin_timed(void)
{
    begin();
    products_set_timing(PRODUCTS_ALL);
    unsetenv("ZEROD_MATMUL_TIMING");
    if (gpu && !is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
}

/* The first file of the cache whose name ends so; "" when there is none. */
static const char *tuning_file(const char *end)
{
    static char path[PATH_MAX];
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/zerod", cache);
    DIR *dir = opendir(folder);
    *path = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        size_t length = strlen(entry->d_name), tail = strlen(end);
        if (length > tail && strcmp(entry->d_name + length - tail, end) == 0)
            fs_join(path, sizeof path, folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return path;
}

Test(matmul_cuda, a_second_start_times_nothing, .init = begin_timed,
     .fini = end)
{
    several_products();
    struct product_counters first = product_counters();
    struct cublaslt_standin_counters then = asked();
    /* with the plan of the part that GELU was measured against */
    cr_assert_eq(first.plans, 6);
    cr_assert_eq(first.timed, first.plans);
    cr_assert_gt(then.products, 50);
    /* neither the reduction in place nor TF32 was even tried */
    cr_assert_eq(then.of_algorithm[4], 0);
    cr_assert_eq(then.of_algorithm[5], 0);
    cr_assert_gt(then.of_algorithm[3], 0);
    cr_assert(*tuning_file(".txt"));

    products_close(); /* as a new process */
    let_fail(NULL);
    int count = several_products();
    struct product_counters second = product_counters();
    cr_assert_geq(second.plans - first.plans, 5);
    cr_assert_eq(second.read, second.plans - first.plans);
    cr_assert_eq(second.timed, first.timed);
    cr_assert_eq(asked().heuristics, 0);
    cr_assert_eq(asked().products, count);
}

static void fused_products(void)
{
    check_gelu(DTYPE_BF16, 64, 32, 96, true, true);
    check_dgelu(DTYPE_BF16, 64, 32, 96, true);
    check_weight_grads(DTYPE_BF16, 64, 32, 96, true, false);
    check_weight_grads(DTYPE_BF16, 64, 32, 96, true, true);
}

/* How many of the four are one call from now on. */
static uint64_t fused_from_now_on(const char *slow)
{
    let_fail(slow);
    fused_products();
    let_fail(NULL);
    fused_products();
    uint64_t fused = asked().with_epilogue;
    products_close(); /* the file says the same, and nothing is timed again */
    let_fail(NULL);
    fused_products();
    cr_assert_eq(asked().products, 4);
    cr_assert_eq(asked().heuristics, 0);
    /* the bias of the first product, when that is apart */
    cr_assert_eq(asked().with_epilogue, fused);
    return fused;
}

Test(matmul_cuda, an_epilogue_that_is_slow_gives_way_to_its_parts,
     .init = begin_timed, .fini = end)
{
    cr_assert_eq(fused_from_now_on("slow_epilogue"), 1);
}

Test(matmul_cuda, an_epilogue_that_is_fast_stays, .init = begin_timed,
     .fini = end)
{
    cr_assert_eq(fused_from_now_on("slow_plain"), 4);
}

Test(matmul_cuda, without_timing_the_first_algorithm_is_taken,
     .init = begin_timed, .fini = end)
{
    products_set_timing(PRODUCTS_HEURISTIC);
    int count = several_products();
    cr_assert_eq(product_counters().timed, 0);
    cr_assert_eq(asked().products, count);
    cr_assert_eq(asked().of_algorithm[1], count);
    cr_assert_str_eq(tuning_file(".txt"), "");
    products_close();
    let_fail(NULL);
    setenv("ZEROD_MATMUL_TIMING", "all", 1); /* stands above the setting */
    several_products();
    cr_assert_gt(product_counters().timed, 0);
}

Test(matmul_cuda, small_products_are_not_timed, .init = begin_timed,
     .fini = end)
{
    products_set_timing(PRODUCTS_LARGE);
    int count = several_products();
    cr_assert_eq(asked().products, count);
    cr_assert_eq(product_counters().timed, 0);
}

static void damage(const char *path, long from_end, char byte)
{
    FILE *file = fopen(path, "r+");
    cr_assert(file);
    fseek(file, from_end, SEEK_END);
    fputc(byte, file);
    fclose(file);
}

Test(matmul_cuda, a_damaged_file_is_replaced, .init = begin_timed, .fini = end)
{
    several_products();
    uint64_t timed = product_counters().timed;
    damage(tuning_file(".txt"), -20, 'x');
    products_close();
    several_products();
    cr_assert_eq(product_counters().timed, 2 * timed);
    cr_assert_eq(product_counters().read, 0, "%d", (int)timed);
    products_close();
    several_products();
    cr_assert_eq(product_counters().timed, 2 * timed);
}

Test(matmul_cuda, a_place_that_cannot_be_written_is_no_error,
     .init = begin_timed, .fini = end)
{
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    int count = several_products();
    cr_assert_gt(asked().products, count);
    cr_assert_eq(zd_error_get()->status, ZD_OK);
}

/* --- the file alone ------------------------------------------------------ */

static void cache_only(void)
{
    snprintf(cache, sizeof cache, "/tmp/zerod-tuning-%d", (int)getpid());
    setenv("XDG_CACHE_HOME", cache, 1);
}

static void cache_end(void)
{
    fs_remove_tree(cache);
    zd_error_clear();
}

static struct tuned tuned_of(int m)
{
    struct tuned t = {
            .product = {.m = m, .n = 7, .k = 9, .alignment = 16},
            .workspace_kib = 32768,
            .microseconds = (float)m,
    };
    for (int i = 0; i < 8; i++)
        t.algorithm[i] = (uint64_t)m << (i * 8);
    return t;
}

static bool knows(const struct tuning *tuning, int m)
{
    struct tuned t = tuned_of(m);
    const struct tuned *found =
            tuning_find(tuning, &t.product, t.workspace_kib);
    return found && memcmp(found->algorithm, t.algorithm, 64) == 0;
}

enum { EACH = 40 };

struct writer {
    pthread_t thread;
    int first;
};

static void *write_some(void *ctx)
{
    struct writer *writer = ctx;
    struct tuning *tuning = tuning_create("GPU", "library");
    for (int i = 0; i < EACH; i++) {
        struct tuned t = tuned_of(writer->first + i);
        tuning_lock(tuning, 60000);
        tuning_add(tuning, &t);
        tuning_unlock(tuning);
    }
    tuning_destroy(tuning);
    return NULL;
}

Test(matmul_tuning, nothing_is_lost_between_writers, .init = cache_only,
     .fini = cache_end)
{
    struct writer writers[] = {{.first = 1}, {.first = 1000}, {.first = 2000}};
    for (int i = 0; i < 3; i++)
        pthread_create(&writers[i].thread, NULL, write_some, &writers[i]);
    for (int i = 0; i < 3; i++)
        pthread_join(writers[i].thread, NULL);
    struct tuning *tuning = tuning_create("GPU", "library");
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < EACH; j++)
            cr_assert(knows(tuning, writers[i].first + j));
    tuning_destroy(tuning);
}

Test(matmul_tuning, another_gpu_or_library_is_not_believed, .init = cache_only,
     .fini = cache_end)
{
    struct tuned t = tuned_of(5);
    struct tuning *tuning = tuning_create("GPU 1", "library 13.1");
    tuning_lock(tuning, 1000);
    tuning_add(tuning, &t);
    tuning_unlock(tuning);
    tuning_destroy(tuning);
    /* names that make the same path */
    struct tuning *gpu2 = tuning_create("GPU-1", "library 13.1");
    struct tuning *library2 = tuning_create("GPU 1", "library-13.1");
    struct tuning *same = tuning_create("GPU 1", "library 13.1");
    cr_assert_str_eq(tuning_path(gpu2), tuning_path(same));
    cr_assert(!knows(gpu2, 5));
    cr_assert(!knows(library2, 5));
    cr_assert(knows(same, 5));
    tuning_destroy(gpu2), tuning_destroy(library2), tuning_destroy(same);
}

Test(matmul_tuning, files_of_rubbish_are_ignored, .init = cache_only,
     .fini = cache_end)
{
    static const char *const texts[] = {
            "",
            "\n",
            "zerod products 1",
            "zerod products 1\n",
            "zerod products 2 abc\nGPU\nlibrary\n",
            "zerod products 1 abc\nGPU\nlibrary\n1 2 3\n"};
    char folder[PATH_MAX], path[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/zerod", cache);
    MUST(fs_make_dirs(folder));
    fs_join(path, sizeof path, folder, "products-gpu-library.txt");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct tuned t = tuned_of(3);
        MUST(fs_write_file(path, texts[i], strlen(texts[i])));
        struct tuning *tuning = tuning_create("GPU", "library");
        cr_assert(!knows(tuning, 3));
        tuning_lock(tuning, 1000);
        tuning_add(tuning, &t);
        tuning_unlock(tuning);
        tuning_destroy(tuning);
        tuning = tuning_create("GPU", "library");
        cr_assert(knows(tuning, 3), "after \"%s\"", texts[i]);
        tuning_destroy(tuning);
    }
}

Test(matmul_tuning, a_lock_that_is_held_is_not_waited_for_for_ever,
     .init = cache_only, .fini = cache_end)
{
    struct tuning *first = tuning_create("GPU", "library");
    struct tuning *second = tuning_create("GPU", "library");
    struct tuned t = tuned_of(4);
    tuning_lock(first, 1000);
    tuning_lock(second, 10);
    tuning_add(second, &t); /* for itself only */
    tuning_unlock(second);
    cr_assert(knows(second, 4));
    tuning_unlock(first);
    struct tuning *third = tuning_create("GPU", "library");
    cr_assert(!knows(third, 4));
    tuning_destroy(first), tuning_destroy(second), tuning_destroy(third);
}
