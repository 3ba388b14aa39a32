/* matmul_cases.c - see matmul_cases.h. */
#include "matmul_cases.h"

#include "tests/kernels/arrays.h"
#include "tests/kernels/fp8_sums.h"

#include "base/device/device_memory.h"
#include "base/file/fs.h"
#include "kernels/cuda/cuda_workspace.h"
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
    size_t bytes = MATMUL_WORKSPACE_BYTES;
    if (device_gpu_count(NULL) == 0)
        cr_skip("no CUDA device");
    snprintf(cache, sizeof cache, "/tmp/zerod-matmul-%d", (int)getpid());
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
    matmul_cuda_close();
    device_give(workspace, MATMUL_WORKSPACE_BYTES);
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

/* --- one matmul on both ------------------------------------------------- */

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

/* `rows` rows of `width`, `stride` apart, on both sides; NaNs in the gaps. */
static struct twin rows_of(
        enum dtype dtype, int rows, int width, int stride, float scale,
        uint64_t seed)
{
    size_t element = dtype_bytes(dtype);
    struct twin t = twin(dtype, (size_t)rows * stride, scale, seed);
    for (int row = 0; row < rows; row++)
        memset((char *)t.host + ((size_t)row * stride + width) * element, 0xff,
               (size_t)(stride - width) * element);
    MUST(device_write(t.device, t.host, twin_bytes(&t)));
    return t;
}

/* The GPU's rows against the host's, and gaps that stayed. */
static void compare_rows(
        struct twin *t, int rows, int width, int stride, double tolerance,
        const char *what)
{
    size_t element = dtype_bytes(t->dtype);
    char *got = malloc(twin_bytes(t));
    MUST(device_read(got, t->device, twin_bytes(t)));
    for (int row = 0; row < rows; row++) {
        size_t at = (size_t)row * stride * element;
        double error =
                worst(got + at, (char *)t->host + at, t->dtype, (size_t)width);
        cr_expect(error <= tolerance, "%s: %g > %g", what, error, tolerance);
        for (size_t i = width * element; i < stride * element; i++)
            cr_assert_eq((unsigned char)got[at + i], 0xff, "%s: a gap", what);
    }
    free(got);
    twin_free(t);
}

/* Both sides have the same arrays but for their addresses. */
void check_matmul(struct matmul m)
{
    struct tables t = tables_of(m.a.type);
    enum dtype type = m.a.type;
    bool ta = m.a.transposed, tb = m.b.transposed;
    bool is_gelu = m.epilogue == MATMUL_GELU || m.epilogue == MATMUL_DGELU;
    int sa = matmul_stride_a(&m), sb = matmul_stride_b(&m);
    int so = matmul_stride_out(&m);
    float scale = (m.epilogue == MATMUL_GELU ? 3.0f : 1.0f) / sqrtf((float)m.K);
    char what[160];
    struct twin a = rows_of(type, ta ? m.K : m.M, ta ? m.M : m.K, sa, scale, 1);
    struct twin b = rows_of(type, tb ? m.N : m.K, tb ? m.K : m.N, sb, 1.0f, 2);
    struct twin bias = twin(type, (size_t)m.N, 1.0f, 3), aux = {0};
    struct twin out = rows_of(m.out.type, m.M, m.N, so, 1.0f, 4);
    if (is_gelu)
        aux = twin(type, (size_t)m.M * m.N, 3.0f, 5);
    else if (m.epilogue != MATMUL_PLAIN)
        aux =
                twin(DTYPE_FP32,
                     (size_t)(m.epilogue == MATMUL_SUM_A ? m.M : m.N), 1.0f, 5);
    struct matmul host = m, device = m;
    host.b.type = device.b.type = type;
    host.a.data = a.host, host.b.data = b.host, host.out.data = out.host;
    host.aux = aux.host, host.bias = m.bias ? bias.host : NULL;
    device.a.data = a.device, device.b.data = b.device,
    device.out.data = out.device;
    device.aux = aux.device, device.bias = m.bias ? bias.device : NULL;
    MUST(t.plain->matmul(NULL, &host));
    MUST(t.gpu->matmul(NULL, &device));
    snprintf(
            what, sizeof what, "%dx%dx%d %s to %s%s%s%s%s, epilogue %d, gap %d",
            m.M, m.N, m.K, dtype_name(type), dtype_name(m.out.type),
            ta ? " a^T" : "", tb ? " b^T" : "", m.accumulate ? " +=" : "",
            m.bias ? " bias" : "", m.epilogue, so - m.N);
    compare_rows(
            &out, m.M, m.N, so, (is_gelu ? 2 : 1) * tolerances[m.out.type],
            what);
    if (aux.host)
        compare(&aux, tolerances[aux.dtype], "aux");
    twin_free(&a), twin_free(&b), twin_free(&bias);
}

void check_plain(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, bool narrow, bool with_bias)
{
    check_matmul((struct matmul){
            .M = M,
            .N = N,
            .K = K,
            .a = {.type = dtype, .transposed = trans_a},
            .b = {.transposed = trans_b},
            .out = {.type = narrow ? dtype : DTYPE_FP32},
            .scale = narrow ? 0.75f : 0,
            .bias = with_bias ? "" : NULL,
            .accumulate = accumulate});
}

void check_strided(
        enum dtype dtype, int M, int N, int K, bool trans_a, bool trans_b,
        bool accumulate, int gap)
{
    check_matmul((struct matmul){
            .M = M,
            .N = N,
            .K = K,
            .a = {.type = dtype,
                  .transposed = trans_a,
                  .stride = (trans_a ? M : K) + gap},
            .b = {.transposed = trans_b},
            .out = {.type = accumulate ? DTYPE_FP32 : dtype, .stride = N + gap},
            .accumulate = accumulate});
}

void check_gelu(
        enum dtype dtype, int M, int N, int K, bool trans_b, bool with_bias)
{
    check_matmul((struct matmul){
            .M = M,
            .N = N,
            .K = K,
            .a = {.type = dtype},
            .b = {.transposed = trans_b},
            .out = {.type = dtype},
            .bias = with_bias ? "" : NULL,
            .epilogue = MATMUL_GELU});
}

void check_dgelu(enum dtype dtype, int M, int N, int K, bool trans_b)
{
    check_matmul((struct matmul){
            .M = M,
            .N = N,
            .K = K,
            .a = {.type = dtype},
            .b = {.transposed = trans_b},
            .out = {.type = dtype},
            .epilogue = MATMUL_DGELU});
}

void check_weight_grads(
        enum dtype dtype, int rows, int columns, int tokens, bool dy_first,
        bool accumulate)
{
    check_matmul((struct matmul){
            .M = rows,
            .N = columns,
            .K = tokens,
            .a = {.type = dtype, .transposed = true},
            .out = {.type = DTYPE_FP32},
            .epilogue = dy_first ? MATMUL_SUM_A : MATMUL_SUM_B,
            .accumulate = accumulate});
}

/* Codes and scales of an operand of `rows` by K. */
struct twin_codes {
    struct twin codes, scales;
};

static struct twin_codes twin_codes(
        const struct matmul_operand *x, int rows, int K, uint64_t seed)
{
    size_t count = fp8_scale_count(x->layout, (size_t)rows, (size_t)K);
    float scale = 1.0f / sqrtf((float)K);
    struct twin_codes t = {
            twin(x->type, (size_t)rows * (size_t)K, 4.0f, seed),
            twin(DTYPE_FP32, count, scale, seed + 1)};
    return t;
}

void check_codes(struct matmul m)
{
    struct tables t = tables_of(DTYPE_BF16);
    int so = matmul_stride_out(&m);
    struct twin_codes a = twin_codes(&m.a, m.M, m.K, 1);
    struct twin_codes b = twin_codes(&m.b, m.N, m.K, 3);
    struct twin bias = twin(DTYPE_BF16, (size_t)m.N, 1.0f, 5);
    struct twin out = rows_of(m.out.type, m.M, m.N, so, 1.0f, 6);
    struct matmul host = m, device = m;
    char what[160];
    host.a.data = a.codes.host, host.a.scales = a.scales.host;
    host.b.data = b.codes.host, host.b.scales = b.scales.host;
    host.out.data = out.host, host.bias = m.bias ? bias.host : NULL;
    device.a.data = a.codes.device, device.a.scales = a.scales.device;
    device.b.data = b.codes.device, device.b.scales = b.scales.device;
    device.out.data = out.device, device.bias = m.bias ? bias.device : NULL;
    MUST(t.plain->matmul(NULL, &host));
    MUST(t.gpu->matmul(NULL, &device));
    snprintf(
            what, sizeof what, "%dx%dx%d %s, scales %d, by %s, scales %d%s%s",
            m.M, m.N, m.K, dtype_name(m.a.type), m.a.layout,
            dtype_name(m.b.type), m.b.layout, m.accumulate ? " +=" : "",
            m.bias ? " bias" : "");
    compare_rows(
            &out, m.M, m.N, so, fp8_sum_tolerance(tolerances[m.out.type]),
            what);
    twin_free(&a.codes), twin_free(&a.scales), twin_free(&bias);
    twin_free(&b.codes), twin_free(&b.scales);
}
