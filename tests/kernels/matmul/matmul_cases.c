/* matmul_cases.c - see matmul_cases.h. */
#include "matmul_cases.h"

#include "tests/kernels/arrays.h"
#include "tests/kernels/fp8_sums.h"

#include "base/device/device_memory.h"
#include "base/file/fs.h"
#include "base/must.h"
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
    ZD_PRINT(cache, "/tmp/zerod-matmul-%d", (int)getpid());
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
    pairs_begin();
    device_use(gpu);
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

void pairs_on_gpu(enum dtype dtype, int shift)
{
    struct runner cuda = {.device = gpu, .shift = shift};
    struct runner plain = {.shift = shift};
    MUST(kernels_cuda(dtype, &cuda.ops));
    MUST(kernels_plain(dtype, &plain.ops));
    pair_runners(cuda, plain);
}

/* `rows` rows of `width`, `stride` apart; NaNs in the gaps. */
static struct pair rows_of(
        enum dtype dtype, int rows, int width, int stride, float scale,
        uint64_t seed)
{
    size_t element = dtype_bytes(dtype), count = (size_t)rows * stride;
    ZD_FREED char *values = random_array(dtype, count, scale, seed);
    for (int row = 0; row < rows; row++)
        memset(values + ((size_t)row * stride + width) * element, 0xff,
               (size_t)(stride - width) * element);
    struct pair p = pair_of_values(dtype, count, values);
    return p;
}

/* The GPU's rows against the host's, and gaps that stayed. */
static void compare_rows(
        const struct pair *p, int rows, int width, int stride, double tolerance,
        const char *what)
{
    size_t element = dtype_bytes(p->dtype[0]);
    char *got = pair_fetch(p, 0), *want = pair_fetch(p, 1);
    for (int row = 0; row < rows; row++) {
        size_t at = (size_t)row * stride * element;
        double error = worst(got + at, want + at, p->dtype[0], (size_t)width);
        cr_expect(error <= tolerance, "%s: %g > %g", what, error, tolerance);
        for (size_t i = width * element; i < stride * element; i++)
            cr_assert_eq((unsigned char)got[at + i], 0xff, "%s: a gap", what);
    }
    free(got), free(want);
}

/* Rows of the compute type; or codes, and then their scales. */
struct operand {
    struct pair rows, scales;
};

static struct operand operand_of(
        const struct matmul_operand *x, enum dtype type, int rows, int columns,
        int stride, float scale, uint64_t seed)
{
    size_t r = (size_t)rows, c = (size_t)columns;
    if (x->layout == SCALES_NONE)
        return (struct operand){
                rows_of(type, rows, columns, stride, scale, seed)};
    return (struct operand){
            pair_of(x->type, r * c, 4.0f, seed),
            pair_of(DTYPE_FP32, fp8_scale_count(x->layout, r, c),
                    1.0f / sqrtf((float)columns), seed + 10)};
}

static void text_of(const struct matmul *m, char *out, size_t bytes)
{
    snprintf(
            out, bytes,
            "%dx%dx%d %s%s, scales %d, by %s%s, scales %d, to %s%s%s, epilogue "
            "%d, gap %d",
            m->M, m->N, m->K, dtype_name(m->a.type),
            m->a.transposed ? "^T" : "", m->a.layout, dtype_name(m->b.type),
            m->b.transposed ? "^T" : "", m->b.layout, dtype_name(m->out.type),
            m->accumulate ? " +=" : "", m->bias ? " bias" : "", m->epilogue,
            matmul_stride_out(m) - m->N);
}

void check_matmul(struct matmul m, int shift)
{
    static const double tolerances[] = {
            [DTYPE_FP32] = 2e-5, [DTYPE_BF16] = 1.6e-2, [DTYPE_FP16] = 2e-3};
    bool is_fp8 = m.a.layout != SCALES_NONE, has_bias = m.bias != NULL;
    bool ta = m.a.transposed, tb = m.b.transposed;
    bool is_gelu = m.epilogue == MATMUL_GELU || m.epilogue == MATMUL_DGELU;
    enum dtype type = is_fp8 ? DTYPE_BF16 : m.a.type;
    double tolerance = (is_gelu ? 2 : 1) * tolerances[m.out.type];
    float scale = (m.epilogue == MATMUL_GELU ? 3.0f : 1.0f) / sqrtf((float)m.K);
    int sa = matmul_stride_a(&m), sb = matmul_stride_b(&m);
    int so = matmul_stride_out(&m);
    char what[200];
    if (!is_fp8)
        m.b.type = type;
    text_of(&m, what, sizeof what);
    pairs_on_gpu(type, shift);
    struct operand a = operand_of(
            &m.a, type, ta ? m.K : m.M, ta ? m.M : m.K, sa, scale, 1);
    struct operand b =
            operand_of(&m.b, type, tb ? m.N : m.K, tb ? m.K : m.N, sb, 1.0f, 2);
    struct pair bias = pair_of(type, (size_t)m.N, 1.0f, 3), aux = {0};
    struct pair out = rows_of(m.out.type, m.M, m.N, so, 1.0f, 4);
    if (is_gelu)
        aux = pair_of(type, (size_t)m.M * m.N, 3.0f, 5);
    else if (m.epilogue != MATMUL_PLAIN)
        aux = pair_of(
                DTYPE_FP32, (size_t)(m.epilogue == MATMUL_SUM_A ? m.M : m.N),
                1.0f, 5);
    for (int r = 1; r >= 0; r--) {
        const struct kernels *ops = pair_enter(r);
        m.a.data = a.rows.of[r], m.a.scales = a.scales.of[r];
        m.b.data = b.rows.of[r], m.b.scales = b.scales.of[r];
        m.out.data = out.of[r], m.aux = aux.of[r];
        m.bias = has_bias ? bias.of[r] : NULL;
        MUST(ops->matmul(NULL, &m));
    }
    compare_rows(
            &out, m.M, m.N, so,
            is_fp8 ? fp8_sum_tolerance(tolerance) : tolerance, what);
    if (aux.count) {
        pair_compare(aux);
        cr_expect(
                pair_difference() <= tolerances[aux.dtype[0]], "%s: aux: %g",
                what, pair_difference());
    }
    pair_enter(0);
}

static struct matmul matmul_of(
        enum dtype dtype, int M, int N, int K, int flags,
        enum matmul_epilogue epilogue)
{
    bool narrow = flags & NARROW;
    return (struct matmul){
            .M = M,
            .N = N,
            .K = K,
            .a = {.type = dtype, .transposed = flags & TRANS_A},
            .b = {.transposed = flags & TRANS_B},
            .out = {.type = narrow ? dtype : DTYPE_FP32},
            .scale = narrow && epilogue == MATMUL_PLAIN ? 0.75f : 0,
            .bias = flags & BIAS ? "" : NULL,
            .accumulate = flags & ADDS,
            .epilogue = epilogue};
}

void check_shape(
        enum dtype dtype, int M, int N, int K, int flags,
        enum matmul_epilogue epilogue)
{
    check_matmul(matmul_of(dtype, M, N, K, flags, epilogue), 0);
}

void check_gaps(enum dtype dtype, int M, int N, int K, int flags, int gap)
{
    struct matmul m = matmul_of(dtype, M, N, K, flags, MATMUL_PLAIN);
    m.scale = 0;
    m.a.stride = (flags & TRANS_A ? M : K) + gap;
    m.out.stride = N + gap;
    check_matmul(m, 0);
}
