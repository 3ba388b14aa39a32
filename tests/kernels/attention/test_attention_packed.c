/* Attention by cuDNN, computed by a stand-in for its headers: whole samples and
 * packed documents, our layout of the log-sum-exp, and the work space in a
 * plan. */
#include "tests/kernels/attention/problem.h"

#include "base/log.h"
#include "base/must.h"
#include "kernels/attention/attention_cudnn.h"
#include "kernels/matmul/matmul_cuda.h"
#include "tests/base/device/gpu_case.h"
#include "tests/cuda/cudnn/cudnn_standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnn_standin cudnn_standin;

static struct device *device;
static char said[4096];

static void keep(void *ctx, enum zd_log_level level, const char *message)
{
    if (level >= ZD_LOG_INFO)
        snprintf(
                said + strlen(said), sizeof said - strlen(said), "%s\n",
                message);
}

static void begin(void)
{
    setenv("ZEROD_CUDNN", "libm.so.6", 1);
    cudnn_standin = (struct cudnn_standin){.version = 92500, .computes = 1};
    device = gpu_case_open();
    kernels_set_attention(ATTENTION_AUTO);
    setenv("ZEROD_MATMUL_TIMING", "off", 1);
    zd_log_set_hook(keep, NULL);
}

static void end(void)
{
    zd_log_set_hook(NULL, NULL);
    pairs_begin();
    device_use(NULL);
    device_close(device);
}

TestSuite(attention_packed, .init = begin, .fini = end);

static struct ops chosen(enum dtype dtype)
{
    const char *name;
    struct ops ops = own_attention(dtype);
    attention_fn *by_library;
    MUST(attention_cuda_choose(dtype, &by_library, &name));
    if (by_library)
        ops.forward = ops.backward = by_library;
    return ops;
}

/* Checks both directions by cuDNN. */
static void check(struct problem p)
{
    struct ops ops = chosen(p.dtype);
    int executed = cudnn_standin.executed;
    p.by_cudnn = true;
    check_by(&ops, p);
    cr_expect_eq(
            cudnn_standin.executed, executed + 2, "documents of %d: %s",
            p.document, said);
}

Test(attention_packed, samples_of_one_document_match_the_definition)
{
    check((struct problem){DTYPE_BF16, 2, 33, 4, 2, 16, true, 0});
    check((struct problem){DTYPE_FP16, 1, 40, 2, 2, 24, false, 0});
}

/* The first use of a shape times both in each direction; the faster one is used
 * from then on. */
Test(attention_packed, auto_times_cudnn_against_own_kernels)
{
    struct ops ops = chosen(DTYPE_BF16);
    struct problem p = {DTYPE_BF16, 2, 33, 4, 2, 16, true, 0};
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    setenv("ZEROD_MATMUL_TIMING", "on", 1);
    check_by(&ops, p);
    int timed = cudnn_standin.executed;
    cr_expect_geq(timed, 2 * 2);
    cr_expect_eq(matmul_counters().timed, 2);
    check_by(&ops, p);
    cr_expect_leq(cudnn_standin.executed, timed + 2);
    cr_expect_eq(matmul_counters().timed, 2);
    matmul_cuda_close();
}

/* With and without grouped queries, gaps, several samples, and numbers of
 * documents that fill their bucket. */
Test(attention_packed, packed_documents_match_the_definition)
{
    check((struct problem){DTYPE_BF16, 1, 80, 2, 2, 16, false, 20});
    check((struct problem){DTYPE_BF16, 1, 80, 4, 2, 16, true, 23});
    check((struct problem){DTYPE_FP16, 3, 70, 4, 1, 32, true, 31});
    check((struct problem){DTYPE_FP16, 2, 64, 2, 2, 16, true, 19});
    check((struct problem){DTYPE_BF16, 2, 64, 4, 2, 16, false, 40});
}

/* With whole samples, and with documents longer and shorter than the window. */
Test(attention_packed, windows_match_the_definition)
{
    static const struct problem problems[] = {
            {DTYPE_BF16, 2, 33, 4, 2, 16, true, 0},
            {DTYPE_FP16, 1, 80, 2, 2, 16, false, 23},
            {DTYPE_BF16, 2, 64, 4, 2, 16, true, 40}};
    static const int windows[] = {1, 7, 30};
    for (int i = 0; i < 9; i++) {
        struct problem p = problems[i % 3];
        p.window = windows[i / 3];
        check(p);
    }
}

Test(attention_packed, caps_use_own_kernels)
{
    struct ops ops = chosen(DTYPE_BF16);
    struct problem p = {DTYPE_BF16, 1, 40, 2, 2, 16, false, 0};
    p.softcap = 3;
    check_by(&ops, p);
    cr_expect_eq(cudnn_standin.executed, 0);
    cr_expect(strstr(said, "soft cap"), "%s", said);
}

/* On Hopper before 9.25 dq is not deterministic: our own backward reads the
 * results of cuDNN's forward. */
Test(attention_packed, cudnn_forward_feeds_our_own_backward)
{
    cudnn_standin.version = 91900;
    struct ops ops = chosen(DTYPE_BF16);
    check_by(&ops, (struct problem){DTYPE_BF16, 2, 70, 4, 2, 16, true, 40});
    cr_expect_eq(cudnn_standin.executed, 1);
    cr_expect_eq(cudnn_standin.is_backward, 0);
    cr_expect(strstr(said, "our own backward"), "%s", said);
    cr_expect(strstr(said, "cuDNN 9.25, or set model.attn"), "%s", said);
    char *once = strstr(said, "our own backward");
    chosen(DTYPE_FP16);
    cr_expect(once && !strstr(once + 1, "our own backward"), "%s", said);
}

/* The first results of a graph are compared with our own kernels'. A wrong
 * graph is reported and replaced by our own kernels from then on; other graphs
 * continue. */
Test(attention_packed, wrong_graph_is_replaced_by_own_kernels)
{
    static const struct problem problems[] = {
            {DTYPE_BF16, 3, 70, 4, 2, 16, true, 23},
            {DTYPE_FP16, 2, 64, 2, 2, 16, false, 20}};
    for (int i = 0; i < 2; i++) {
        struct problem p = problems[i];
        struct ops ops = chosen(p.dtype);
        int executed = cudnn_standin.executed;
        cudnn_standin.zeroes = 1;
        check_by(&ops, p);
        cr_expect_eq(cudnn_standin.executed, executed + 2);
        cr_expect(strstr(said, "run the forward of"), "%s", said);
        cr_expect(strstr(said, "run the backward of"), "%s", said);
        cr_expect(
                strstr(said, "its results differ from our kernels'"), "%s",
                said);
        cudnn_standin.zeroes = 0;
        *said = '\0';
        check_by(&ops, p);
        cr_expect_eq(cudnn_standin.executed, executed + 2);
        cr_expect_str_empty(said);
        p.T += 16;
        check(p);
    }
}

/* Later results are not compared. */
Test(attention_packed, only_the_first_use_is_compared)
{
    struct ops ops = chosen(DTYPE_BF16);
    struct problem p = {DTYPE_BF16, 2, 64, 2, 2, 16, false, 19};
    struct arrays a = arrays_of(p);
    run_forward(&a, &ops);
    cudnn_standin.zeroes = 1;
    run_forward(&a, &ops);
    ZD_FREED uint16_t *got = pair_fetch(&a.out, 0);
    for (size_t i = 0; i < a.out.count; i++)
        cr_assert_eq(got[i], 0);
    cr_expect_str_empty(said);
}

/* Before 9.25 cuDNN does not get empty documents. */
Test(attention_packed, partial_document_lists_need_a_newer_cudnn)
{
    cudnn_standin.version = 92400;
    struct ops ops = chosen(DTYPE_BF16);
    check_by(&ops, (struct problem){DTYPE_BF16, 2, 70, 4, 2, 16, true, 31});
    cr_expect_eq(cudnn_standin.executed, 0);
    cr_expect(strstr(said, "documents without tokens"), "%s", said);
}

/* Numbers of documents in the same bucket share a graph. */
Test(attention_packed, counts_of_documents_share_graphs)
{
    struct ops ops = chosen(DTYPE_BF16);
    static const int document[] = {30, 28, 26, 50}, graphs[] = {1, 1, 1, 2};
    int built = 0;
    for (int i = 0; i < 4; i++) {
        struct problem p = {DTYPE_BF16, 1, 200, 2, 2, 16, false, document[i]};
        struct arrays a = arrays_of(p); /* also builds the plan's graphs */
        cr_assert_eq(attention_bucket(&a.shape), i == 3 ? 4 : 8);
        if (i == 0)
            built = cudnn_standin.built;
        run_forward(&a, &ops);
        cr_expect_eq(cudnn_standin.built, built + graphs[i]);
    }
}

Test(attention_packed, short_documents_use_own_kernels)
{
    struct ops ops = chosen(DTYPE_BF16);
    struct problem p = {DTYPE_BF16, 1, 150, 2, 2, 16, false, 9};
    check_by(&ops, p);
    cr_expect_eq(cudnn_standin.executed, 0);
    cr_expect(strstr(said, "fewer than 16 tokens"), "%s", said);
}

/* With a device the plan counts exactly what cuDNN reports, which suffices for
 * any pass of the shape. */
Test(attention_packed, the_plan_counts_what_cudnn_reports)
{
    struct attention_shape s = {
            .B = 2, .T = 64, .H = 4, .KV = 2, .D = 16, .scale = 0.25f};
    s.q_stride = s.k_stride = s.v_stride = (4 + 2 * 2) * 16;
    struct attention_facts facts = attention_cuda_facts(DTYPE_BF16);
    size_t own = attention_own_scratch_bytes(&s);
    size_t reported = attention_cuda_scratch_bytes(&s, DTYPE_BF16) - own;
    size_t bound = attention_work_bound(&s, &facts), spare = 1 << 20;
    cr_expect_leq(reported, bound - spare, "%zu %zu", reported, bound);
    cr_expect_gt(reported, (bound - spare) / 2);
    s.T = 66;
    cudnn_standin.workspace = 4096;
    struct attention_shape first = s;
    size_t more = attention_cuda_scratch_bytes(&s, DTYPE_BF16);
    s.B = 1; /* another graph */
    cudnn_standin.workspace = 0;
    size_t less = attention_cuda_scratch_bytes(&s, DTYPE_BF16);
    cr_expect_lt(less, more);
    cr_expect_eq(attention_cuda_scratch_bytes(&first, DTYPE_BF16), more);
}

/* A plan never has more than O(T); a pass that needs more logs why it is
 * declined. */
Test(attention_packed, graph_that_needs_too_much_memory_is_declined)
{
    struct ops ops = chosen(DTYPE_BF16);
    cudnn_standin.workspace = 1 << 30;
    check_by(&ops, (struct problem){DTYPE_BF16, 1, 64, 2, 2, 16, true, 20});
    cr_expect(strstr(said, "proportional to the tokens"), "%s", said);
    check_by(&ops, (struct problem){DTYPE_BF16, 1, 64, 2, 2, 16, true, 0});
    cr_expect(strstr(said, "bytes of work space, there are"), "%s", said);
    cr_expect_eq(cudnn_standin.executed, 0);
}
