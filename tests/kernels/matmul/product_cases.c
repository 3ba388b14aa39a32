/* product_cases.c - see product_cases.h. */
#include "product_cases.h"

#include "tests/kernels/arrays.h"

#include "base/device/device_memory.h"
#include "base/file/fs.h"
#include "kernels/cuda/cuda_workspace.h"
#include "kernels/fused.h"
#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static struct device *gpu;
static void *workspace;
static char cache[64];

void gpu_begin(void)
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

void gpu_end(void)
{
    if (!gpu)
        return;
    MUST(device_check());
    products_close();
    device_give(workspace, matmul_cuda_workspace_bytes(DTYPE_FP32));
    device_use(NULL);
    device_close(gpu);
    fs_remove_tree(cache);
    zd_error_clear();
}

const char *gpu_cache(void)
{
    return cache;
}

/* --- the stand-in's doors ------------------------------------------------ */

static void *standin(const char *name)
{
    const struct cublaslt *api;
    MUST(cublaslt_open(&api));
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}

bool is_standin(void)
{
    return standin("cublaslt_standin_counters") != NULL;
}

struct cublaslt_standin_counters asked(void)
{
    return ((cublaslt_standin_counters_fn *)standin(
            "cublaslt_standin_counters"))();
}

void let_fail(const char *failures)
{
    ((cublaslt_standin_fail_fn *)standin("cublaslt_standin_fail"))(failures);
}

/* --- one product on both ------------------------------------------------- */

static size_t twin_bytes(const struct twin *t)
{
    return t->count * dtype_bytes(t->dtype);
}

struct twin twin(enum dtype dtype, size_t count, float scale, uint64_t seed)
{
    struct twin t = {.dtype = dtype, .count = count};
    t.host = random_array(dtype, count, scale, seed);
    MUST(device_take(twin_bytes(&t), &t.device));
    MUST(device_write(t.device, t.host, twin_bytes(&t)));
    return t;
}

void twin_free(struct twin *t)
{
    if (!t->host)
        return;
    device_give(t->device, twin_bytes(t));
    free(t->host);
}

double twin_error(const struct twin *t)
{
    void *copy = malloc(twin_bytes(t) + 1);
    MUST(device_read(copy, t->device, twin_bytes(t)));
    double most = worst(copy, t->host, t->dtype, t->count);
    free(copy);
    return most;
}

void compare(struct twin *t, double tolerance, const char *what)
{
    double error = twin_error(t);
    cr_expect(
            error <= tolerance, "%s, %s: %g > %g", what, dtype_name(t->dtype),
            error, tolerance);
    twin_free(t);
}

static const double tolerances[] = {
        [DTYPE_FP32] = 2e-5, [DTYPE_BF16] = 1.6e-2, [DTYPE_FP16] = 2e-3};

struct tables tables_of(enum dtype dtype)
{
    struct tables t;
    MUST(kernels_cuda(dtype, &t.gpu));
    MUST(kernels_plain(dtype, &t.plain));
    return t;
}

void check_matmul(
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

/* `count` rows with a gap of no numbers behind each, on both sides. */
static struct twin gapped(
        enum dtype dtype, int count, int width, int gap, float scale,
        uint64_t seed)
{
    int stride = width + gap;
    struct twin t = twin(dtype, (size_t)count * stride, scale, seed);
    for (int row = 0; row < count; row++)
        memset((char *)t.host +
                       ((size_t)row * stride + width) * dtype_bytes(dtype),
               0xff, (size_t)gap * dtype_bytes(dtype));
    MUST(device_write(t.device, t.host, twin_bytes(&t)));
    return t;
}

/* Rows of the GPU's `out` against those of the dense `want`, and its gaps. */
static void compare_rows(
        struct twin *out, const struct twin *want, int M, int N, int stride,
        const char *what)
{
    size_t element = dtype_bytes(out->dtype);
    char *got = malloc(twin_bytes(out));
    double error = 0.0;
    MUST(device_read(got, out->device, twin_bytes(out)));
    for (int i = 0; i < M; i++) {
        char *row = got + (size_t)i * stride * element;
        double e =
                worst(row, (char *)want->host + (size_t)i * N * element,
                      out->dtype, (size_t)N);
        if (!(e <= error))
            error = isnan(e) ? INFINITY : e;
        for (size_t j = N * element; j < stride * element; j++)
            cr_assert_eq((unsigned char)row[j], 0xff, "%s: a gap", what);
    }
    cr_expect(
            error <= tolerances[out->dtype], "%s, %s: %g", what,
            dtype_name(out->dtype), error);
    free(got);
    twin_free(out);
}

static void *dense_copy(const struct twin *t, int count, int width, int stride)
{
    size_t element = dtype_bytes(t->dtype);
    char *copy = malloc((size_t)count * width * element);
    for (int i = 0; i < count; i++)
        memcpy(copy + (size_t)i * width * element,
               (char *)t->host + (size_t)i * stride * element, width * element);
    return copy;
}

void check_strided(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, int gap)
{
    struct tables t = tables_of(dtype);
    enum dtype out_type = accumulate ? DTYPE_FP32 : dtype;
    int rows = trans_a ? K : M, width = trans_a ? M : K;
    struct matmul_strides strides = {
            .out = N + gap,
            .a = width + gap,
            .b = trans_b ? K : N,
    };
    char what[96];
    float scale = 1.0f / sqrtf((float)K);
    struct twin a = gapped(dtype, rows, width, gap, scale, 1);
    struct twin b = twin(dtype, (size_t)K * N, 1.0f, 2);
    struct twin out = gapped(out_type, M, N, gap, 1.0f, 4);
    struct twin want = {.dtype = out_type, .count = (size_t)M * N};
    void *dense_a = dense_copy(&a, rows, width, strides.a);
    want.host = dense_copy(&out, M, N, strides.out);
    MUST(t.plain->matmul(
            NULL, want.host, out_type, dense_a, b.host, NULL, M, N, K, trans_a,
            trans_b, accumulate));
    MUST(fused_matmul_strided(
            t.gpu, NULL, out.device, out_type, a.device, b.device, &strides, M,
            N, K, trans_a, trans_b, accumulate));
    snprintf(
            what, sizeof what, "%dx%dx%d%s%s%s, gaps of %d", M, N, K,
            trans_a ? " a^T" : "", trans_b ? " b^T" : "",
            accumulate ? " +=" : "", gap);
    compare_rows(&out, &want, M, N, strides.out, what);
    twin_free(&a), twin_free(&b);
    free(dense_a), free(want.host);
}

void check_gelu(
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

void check_dgelu(enum dtype dtype, int M, int N, int K, bool trans_b)
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

void check_weight_grads(
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
