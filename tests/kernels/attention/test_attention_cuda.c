/* Attention on the GPU (or its stand-in) against the plain definition: every
 * family of kernels, at odd sizes. */
#include "tests/kernels/attention/problem.h"

#include "base/device/device_memory.h"
#include "kernels/attention/attention_cuda.h"
#include "tests/support/child.h"
#include "tests/support/must.h"

#include <stdlib.h>

static void check(struct problem p)
{
    struct ops own = own_attention(p.dtype);
    check_by(&own, p);
}

static struct device *device;

static void open_gpu(void)
{
    const char *why = "";
    if (device_gpu_count(&why) == 0)
        cr_skip("no CUDA device: %s", why);
    MUST(device_open(DEVICE_CUDA, 0, 1, &device));
    device_use(device);
}

static void close_gpu(void)
{
    pairs_begin();
    device_use(NULL);
    device_close(device);
}

TestSuite(attention_cuda, .init = open_gpu, .fini = close_gpu);

static const enum dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

/* Head sizes that are not whole packs, and above the tiles' 128. */
Test(attention_cuda, rows_of_any_width_match_the_definition)
{
    for (int i = 0; i < 3; i++)
        check((struct problem){types[i], 2, 29, 4, 2, 37, true, i ? 0 : 8});
    check((struct problem){DTYPE_FP32, 1, 13, 1, 1, 512, false, 0});
    check((struct problem){DTYPE_BF16, 1, 13, 2, 1, 264, false, 5});
    check((struct problem){DTYPE_BF16, 1, 70, 2, 2, 20, true, 0});
    check((struct problem){DTYPE_FP16, 1, 77, 2, 1, 100, true, 31});
}

Test(attention_cuda, tiles_match_the_definition)
{
    check((struct problem){DTYPE_FP32, 2, 70, 2, 1, 20, true, 23});
    check((struct problem){DTYPE_FP32, 1, 131, 2, 2, 64, false, 0});
    check((struct problem){DTYPE_FP32, 2, 45, 4, 1, 128, true, 17});
}

/* Makes the stand-in a GPU whose tensor cores are not used. */
static void open_sm_75(void)
{
    setenv("ZD_STANDIN_CAPABILITY", "7.5", 1);
    open_gpu();
}

TestSuite(attention_sm_75, .init = open_sm_75, .fini = close_gpu);

Test(attention_sm_75, rows_of_16_bits_match_the_definition)
{
    check((struct problem){DTYPE_FP16, 2, 45, 4, 1, 128, true, 17});
}

Test(attention_cuda, tensor_cores_match_the_definition)
{
    static const int widths[] = {40, 64, 80, 96, 128};
    for (int i = 0; i < 5; i++) {
        enum dtype dtype = types[1 + i % 2];
        check((struct problem){
                dtype, 1, 150, 2, 1 + i % 2, widths[i], i & 1, 0});
        check((struct problem){
                dtype, 2, 77, 2, 2 - i % 2, widths[i], true, 10 + 9 * i});
    }
    check((struct problem){DTYPE_FP16, 1, 200, 4, 1, 64, true, 140});
    check((struct problem){DTYPE_BF16, 1, 1, 1, 1, 128, true, 0});
}

/* Head sizes with separate passes for dk and dv. */
Test(attention_cuda, tensor_cores_match_the_definition_for_wide_heads)
{
    check((struct problem){DTYPE_BF16, 1, 90, 2, 1, 192, true, 0});
    check((struct problem){DTYPE_FP16, 1, 75, 2, 2, 136, false, 31});
    check((struct problem){DTYPE_BF16, 2, 70, 2, 1, 256, true, 23});
    check((struct problem){DTYPE_FP16, 1, 130, 1, 1, 256, true, 0});
}

/* A digest of the results. */
static uint64_t digest_of(const void *problem)
{
    open_gpu();
    struct problem p = *(const struct problem *)problem;
    struct arrays a = arrays_of(p);
    struct ops own = own_attention(p.dtype);
    pair_digest();
    run_forward(&a, &own);
    run_backward(&a, &own);
    PAIRS_COMPARE(a.out, a.lse, a.grads);
    return pair_digest();
}

/* Blocks of a grid run in any order; in the stand-in it is a setting. */
Test(attention_order, block_order_does_not_change_bits)
{
    const struct problem problems[] = {
            {DTYPE_FP32, 1, 90, 2, 1, 64, true, 40},
            {DTYPE_BF16, 1, 150, 2, 1, 64, true, 0},
            {DTYPE_FP32, 1, 20, 2, 1, 7, true, 0},
            {DTYPE_BF16, 1, 70, 2, 1, 200, true, 0},
            {DTYPE_BF16, 1, 150, 2, 1, 64, true, 0, false, 70, 5},
    };
    for (int i = 0; i < 5; i++) {
        uint64_t forward = child_with_gpu(digest_of, &problems[i], "forward");
        if (forward == CHILD_NO_GPU)
            cr_skip("no CUDA device");
        cr_expect_eq(
                forward, child_with_gpu(digest_of, &problems[i], "reverse"));
        cr_expect_eq(forward, child_with_gpu(digest_of, &problems[i], "7"));
    }
}

/* A multiprocessor of sm_89 has 100 KiB: four warps if two blocks fit, else
 * eight. */
Test(attention_order, four_warps_are_not_alone_on_a_small_multiprocessor)
{
    const size_t small = 100 * 1024;
    cr_expect(attention_takes_eight_warps(87040, small));
    cr_expect(attention_takes_eight_warps(50177, small));
    cr_expect_not(attention_takes_eight_warps(50176, small));
    cr_expect_not(attention_takes_eight_warps(87040, 164 * 1024));
}

/* The digest on a stand-in for another GPU, which must be set before its first
 * call. */
static uint64_t digest_on(
        const char *name, const char *value, const struct problem *problem)
{
    setenv(name, value, 1);
    uint64_t found = child_with_gpu(digest_of, problem, "forward");
    unsetenv(name);
    return found;
}

static uint64_t major_of(const void *unused)
{
    open_gpu();
    return (uint64_t)device_facts().major;
}

static bool can_be_another(void)
{
    setenv("ZD_STANDIN_CAPABILITY", "7.5", 1);
    uint64_t major = child_with_gpu(major_of, NULL, "forward");
    unsetenv("ZD_STANDIN_CAPABILITY");
    return major == 7;
}

/* The `rows` kernels have other bits than tensor cores. */
Test(attention_order, sixteen_bits_have_tensor_cores_from_sm_80_on)
{
    const struct problem problems[] = {
            {DTYPE_BF16, 1, 70, 2, 1, 64, true, 0},
            {DTYPE_FP16, 1, 70, 2, 1, 96, true, 0},
            {DTYPE_BF16, 1, 70, 2, 1, 20, true, 0}, /* not a multiple of 8 */
            {DTYPE_FP32, 1, 70, 2, 1, 20, true, 0},
    };
    if (!can_be_another())
        cr_skip("no GPU that can be another");
    for (int i = 0; i < 4; i++) {
        uint64_t old = digest_on("ZD_STANDIN_CAPABILITY", "7.5", &problems[i]);
        bool same = old == child_with_gpu(digest_of, &problems[i], "forward");
        cr_expect_eq(same, i >= 2, "problem %d", i);
    }
}

/* The stand-in refuses a block that exceeds the GPU's shared memory. */
Test(attention_order, eight_warps_give_the_bits_of_four)
{
    const struct problem problems[] = {
            {DTYPE_BF16, 1, 150, 2, 1, 64, true, 0},
            {DTYPE_FP16, 1, 150, 2, 2, 96, true, 40},
            {DTYPE_BF16, 1, 200, 4, 2, 128, true, 70},
            {DTYPE_FP16, 1, 70, 1, 1, 256, true, 0},
            {DTYPE_FP16, 1, 150, 2, 2, 96, true, 0, false, 40, 5},
    };
    for (int i = 0; i < 5; i++) {
        uint64_t four = child_with_gpu(digest_of, &problems[i], "forward");
        if (four == CHILD_NO_GPU)
            cr_skip("no CUDA device");
        cr_expect_eq(
                four, digest_on("ZD_STANDIN_SHARED", "100K", &problems[i]),
                "problem %d", i);
    }
}

/* The attention of a table with this choice; true: cuDNN's. */
static bool choose(enum dtype dtype, struct ops *ops_out)
{
    const char *name;
    attention_fn *by_library;
    *ops_out = own_attention(dtype);
    MUST(attention_cuda_choose(dtype, &by_library, &name));
    if (by_library)
        ops_out->forward = ops_out->backward = by_library;
    return by_library != NULL;
}

/* Needs cuDNN on this machine; packed documents use our own kernels. */
Test(attention_cuda, cudnn_matches_the_definition)
{
    struct ops ops;
    for (int i = 1; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            kernels_set_attention(j ? ATTENTION_CUDNN : ATTENTION_AUTO);
            if (j == 0 && !choose(types[i], &ops))
                cr_skip("no cuDNN");
            choose(types[i], &ops);
            check_by(
                    &ops,
                    (struct problem){types[i], 2, 256, 4, 4, 64, true, 0});
            check_by(
                    &ops, (struct problem){
                                  types[i], 1, 300, 4, 1, 128, false, 0, true});
            check_by(
                    &ops,
                    (struct problem){types[i], 1, 90, 2, 1, 64, true, 40});
        }
}

Test(attention_choice, own_kernels_need_less_scratch_than_cudnn)
{
    struct attention_shape s = {2, 100, 4, 2, 64, 256, 128, 128, 0.1f, 2};
    kernels_set_attention(ATTENTION_OWN);
    size_t least = attention_cuda_scratch_bytes(&s, DTYPE_BF16);
    cr_expect_geq(least, (size_t)(2 * 100 * 4) * sizeof(float));
    kernels_set_attention(ATTENTION_AUTO);
    cr_expect_geq(attention_cuda_scratch_bytes(&s, DTYPE_BF16), least);
    cr_expect_eq(attention_cuda_scratch_bytes(&s, DTYPE_FP32), least);
}
