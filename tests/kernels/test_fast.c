/* The fast paths of every instruction set this machine has, against the plain
 * definitions, and against themselves at another number of threads. */
#include "cases.h"

#include "kernels/backend.h"
#include "kernels/matmul/library.h"
#include "kernels/plain.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>

enum { ISAS = 5 };
static const char *const isas[ISAS] = {
        "base", "avx2", "avx512", "avx512bf16", "amx"};
static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

/* With the address sanitizer, where the plain definitions are slow, only the
 * widest vectors of each type and the narrowest of one. */
#ifdef __SANITIZE_ADDRESS__
static const bool is_slow = true;
#else
static const bool is_slow = false;
#endif

static void agree_with_plain(enum dtype dtype)
{
    int tried = 0;
    struct runner plain = {.threads = 1}, fast = {.threads = 2};
    MUST(kernels_plain(dtype, &plain.ops));
    for (int i = ISAS - 1; i >= 0; i--) {
        const struct cpu_backend *backend = kernels_backend(isas[i], dtype);
        bool is_narrowest = i == 0 && dtype == DTYPE_FP32;
        if (!backend || (is_slow && tried++ && !is_narrowest))
            continue;
        fast.ops = &backend->ops;
        for (int c = 0; c < op_case_count; c++) {
            double error = case_run(op_cases[c].run, fast, plain);
            cr_expect(
                    error <= op_cases[c].tolerance[dtype],
                    "%s, %s, %s: differs by %g", op_cases[c].name, isas[i],
                    dtype_name(dtype), error);
        }
    }
}

#define AGREES(type, TYPE)                                                     \
    Test(kernels_fast, type##_agrees_with_the_plain_definitions)               \
    {                                                                          \
        agree_with_plain(DTYPE_##TYPE);                                        \
    }
AGREES(fp32, FP32)
AGREES(bf16, BF16)
AGREES(fp16, FP16)

/* In a fast operation values too large for fp16 become infinite, and others do
 * not change. */
Test(kernels_fast, fp16_overflows_to_infinity)
{
    enum { COUNT = 19 };
    const float a[] = {65504, 65504, -65504, 6e-8f, 0x1p-24f, 1};
    const float b[] = {0, 65504, -20000, 0, -0x1p-25f, INFINITY};
    const uint16_t want[] = {0x7bff, 0x7c00, 0xfc00, 1, 1, 0x7c00};
    for (int i = 0; i < ISAS; i++) {
        const struct cpu_backend *backend =
                kernels_backend(isas[i], DTYPE_FP16);
        uint16_t x[COUNT], y[COUNT], out[COUNT];
        for (int k = 0; k < COUNT; k++) {
            x[k] = float_to_fp16(a[k % 6]);
            y[k] = float_to_fp16(b[k % 6]);
        }
        if (!backend)
            continue;
        MUST(backend->ops.add(NULL, out, x, y, COUNT));
        for (int k = 0; k < COUNT; k++)
            cr_expect_eq(
                    out[k], want[k % 6], "%s: %04x + %04x = %04x", isas[i],
                    x[k], y[k], out[k]);
    }
}

/* gelu_segments.h: of all finite bf16, 0.25 % may round to a neighbor of the
 * definition's result; only what is nearly 0 may be further away. */
Test(kernels_fast, gelu_of_every_bf16_rounds_as_the_definition)
{
    enum { COUNT = 65536 };
    static uint16_t x[COUNT], want[COUNT], out[COUNT];
    const struct cpu_backend *backend =
            kernels_backend("avx512bf16", DTYPE_BF16);
    int differ = 0;
    if (!backend)
        cr_skip("no AVX512_BF16");
    for (int i = 0; i < COUNT; i++)
        x[i] = (uint16_t)i;
    MUST(kernels_plain_bf16.gelu_forward(NULL, want, x, COUNT));
    MUST(backend->ops.gelu_forward(NULL, out, x, COUNT));
    for (int i = 0; i < COUNT; i++) {
        float from = bf16_to_float(x[i]), got = bf16_to_float(out[i]);
        float apart = fabsf(bf16_to_float(want[i]) - got);
        if (isnan(from))
            cr_expect(isnan(got), "gelu %04x is %g", x[i], got);
        if (!isfinite(from) || want[i] == out[i])
            continue;
        differ += apart > 0x1p-126f; /* subnormals become 0 */
        cr_expect(
                abs(want[i] - out[i]) == 1 || apart < 1e-8f,
                "gelu %04x is %g, %g apart", x[i], got, apart);
    }
    cr_expect_leq(differ, COUNT / 400, "%d differ", differ);
}

Test(kernels_fast, thread_count_does_not_change_bits)
{
    for (int d = 0; d < (is_slow ? 1 : 3); d++)
        for (int i = 0; i < ISAS; i++) {
            const struct cpu_backend *backend =
                    kernels_backend(isas[i], dtypes[d]);
            if (!backend)
                continue;
            struct runner one = {&backend->ops, 1}, three = {&backend->ops, 3};
            for (int c = 0; c < op_case_count; c++)
                cr_expect_eq(
                        case_run(op_cases[c].run, one, three), 0.0,
                        "%s, %s, %s: bits differ", op_cases[c].name, isas[i],
                        dtype_name(dtypes[d]));
        }
}

static int team_of(int threads)
{
    int team = 0;
#pragma omp parallel num_threads(threads) reduction(+ : team)
    team++;
    return team;
}

/* Our own matmul requests `threads` and gets `team`: the other threads of this
 * region count towards OpenMP's limit. The address sanitizer detects writes
 * past the scratch. */
static void matmul_by(int threads, int team)
{
    enum { M = 40, N = 1111, K = 23 };
    static float a[M * K], b[K * N], expected[M * N], out[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 7 - 3);
    omp_set_max_active_levels(2);
    for (int i = 0; i < ISAS; i++)
        for (int d = 0; d < 3; d++) {
            const struct cpu_backend *backend =
                    kernels_backend(isas[i], dtypes[d]);
            struct matmul m = {
                    .M = M,
                    .N = N,
                    .K = K,
                    .a = {a, dtypes[d]},
                    .b = {b, dtypes[d]},
                    .out = {expected, dtypes[d]}};
            if (!backend)
                continue;
            memset(out, 0, sizeof out);
            kernels_set_threads(1);
            backend->ops.matmul(NULL, &m);
            m.out.data = out;
#pragma omp parallel num_threads(threads - team + 1)
#pragma omp single
            {
                cr_expect_eq(team_of(threads), team);
                kernels_set_threads(threads);
                backend->ops.matmul(NULL, &m);
            }
            cr_expect_arr_eq(
                    out, expected, M * N * dtype_bytes(dtypes[d]),
                    "%s, %s: %d threads of %d", isas[i], dtype_name(dtypes[d]),
                    team, threads);
        }
}

Test(kernels_fast, matmul_is_complete_with_fewer_threads_than_requested)
{
#pragma omp teams num_teams(1) thread_limit(8)
    matmul_by(8, 2);
#pragma omp teams num_teams(1) thread_limit(4)
    matmul_by(4, 3);
}

Test(kernels_fast, the_chosen_table_agrees_too)
{
    for (int d = 0; d < 3; d++) {
        struct runner plain = {.threads = 2}, chosen = {.threads = 2};
        kernels_set_threads(2);
        MUST(kernels_plain(dtypes[d], &plain.ops));
        MUST(kernels_cpu(dtypes[d], &chosen.ops));
        cr_assert_eq(chosen.ops->dtype, dtypes[d]);
        cr_expect(strstr(chosen.ops->name, "2 threads") != NULL);
        double error = case_run(op_cases[0].run, chosen, plain);
        cr_expect(error <= op_cases[0].tolerance[d], "differs by %g", error);
    }
}

static enum zd_status sgemm(struct stream *stream, const struct matmul *m)
{
    return library_sgemm(m, 8);
}

static enum zd_status primitive(struct stream *stream, const struct matmul *m)
{
    return library_primitive(m, 8);
}

static void library_agrees(matmul_fn *matmul)
{
    struct runner plain = {.threads = 2}, library = {.threads = 2};
    MUST(kernels_plain(DTYPE_FP32, &plain.ops));
    struct kernels ops = *plain.ops;
    library.ops = &ops;
    ops.matmul = matmul;
    double error = case_run(op_cases[0].run, library, plain);
    cr_expect(error <= op_cases[0].tolerance[0], "differs by %g", error);
}

/* Also on machines that use our own matmul, and where OpenMP starts fewer than
 * the 8 requested threads. */
Test(kernels_fast, library_matmuls_match_the_definition)
{
    float one = 1.0f, out = 0.0f;
#pragma omp teams num_teams(1) thread_limit(3)
    library_agrees(sgemm);
    struct matmul m = {
            .M = 1,
            .N = 1,
            .K = 1,
            .a = {&one, DTYPE_FP32},
            .b = {&one, DTYPE_FP32},
            .out = {&out, DTYPE_FP32}};
    if (primitive(NULL, &m) == ZD_ERR_UNFIT)
        cr_skip("no oneDNN");
#pragma omp teams num_teams(1) thread_limit(3)
    library_agrees(primitive);
}

/* Threads divide the rows of a tall matrix; small integers, so that every order
 * of sums has the same bits. */
Test(kernels_fast, tall_matmul_by_threads_of_their_own_is_exact)
{
    enum { M = 5003, N = 39, K = 47 };
    static float a[K * M], b[K * N], out[M * N], expected[M * N];
    for (int i = 0; i < K * M; i++)
        a[i] = (float)(i % 11 - 5);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < M * N; i++)
        expected[i] = (float)(i % 3);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < K; k++)
                expected[m * N + n] += a[k * M + m] * b[k * N + n];
    struct matmul p = {
            .M = M,
            .N = N,
            .K = K,
            .a = {a, DTYPE_FP32, true},
            .b = {b, DTYPE_FP32},
            .out = {out, DTYPE_FP32},
            .accumulate = true};
    for (int i = 0; i < 3; i++)
        for (int threads = 1; threads < 6; threads++) {
            const struct cpu_backend *backend =
                    kernels_backend(isas[i], DTYPE_FP32);
            if (!backend)
                continue;
            kernels_set_threads(threads);
            for (int k = 0; k < M * N; k++)
                out[k] = (float)(k % 3);
            cr_assert_eq(backend->ops.matmul(NULL, &p), ZD_OK);
            cr_expect_arr_eq(out, expected, sizeof out, "%s", isas[i]);
        }
}
