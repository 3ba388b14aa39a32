/* test_cuda.c - what optimizers do to memory of a GPU has the bits of the plain
 * definitions. */
#include "base/device/device_memory.h"
#include "base/must.h"
#include "optim/codec.h"
#include "optim/device.h"
#include "tests/optim/family.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>

static struct device *gpu;

static void begin(void)
{
    if (device_gpu_count(NULL) == 0)
        cr_skip("no CUDA device");
    MUST(device_open(DEVICE_CUDA, 0, 1, &gpu));
    device_use(gpu);
    cr_assert_eq(device_backend(), DEVICE_CUDA);
}

static void end(void)
{
    if (!gpu)
        return;
    MUST(device_check());
    device_use(NULL);
    device_close(gpu);
}

TestSuite(cuda, .init = begin, .fini = end, .timeout = 300);

/* --- memory --------------------------------------------------------------- */

/* A block of the device, and where the next array of it begins. */
struct heap {
    char *base;
    size_t bytes, used;
};

static struct heap heap_make(size_t bytes)
{
    struct heap heap = {.bytes = bytes};
    void *base;
    MUST(device_take(bytes, &base));
    heap.base = base;
    return heap;
}

static void heap_drop(struct heap *heap)
{
    MUST(device_finish());
    device_give(heap->base, heap->bytes);
}

/* `bytes` of the host on the device, `skew` bytes after an aligned place. */
static void *heap_copy(
        struct heap *heap, const void *host, size_t bytes, size_t skew)
{
    char *at = heap->base + heap->used + skew;
    heap->used += (bytes + skew + 63) / 64 * 64;
    cr_assert_leq(heap->used, heap->bytes);
    if (bytes && host)
        MUST(device_write(at, host, bytes));
    return at;
}

/* --- the update ----------------------------------------------------------- */

static size_t lane_bytes(const struct tensor *t, int lane)
{
    return optim_lane_bytes(t->layout.lane[lane], t->count);
}

static size_t scale_bytes(const struct tensor *t, int lane)
{
    return optim_scale_count(t->layout.lane[lane], t->count) * sizeof(float);
}

/* A twin whose arrays lie on the device. */
static struct tensor on_device(
        const struct tensor *t, struct heap *heap, size_t skew)
{
    struct tensor d = *t;
    size_t wide = t->count * sizeof(float);
    d.master = heap_copy(heap, t->master, wide, skew);
    d.grad = heap_copy(heap, t->grad, wide, skew);
    d.param = heap_copy(heap, t->param, wide, skew);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        d.state[lane] =
                heap_copy(heap, t->state[lane], lane_bytes(t, lane), skew);
        d.scale[lane] =
                heap_copy(heap, t->scale[lane], scale_bytes(t, lane), 0);
    }
    d.block_v = heap_copy(
            heap, t->block_v, (size_t)t->shape.blocks.count * sizeof(float), 0);
    return d;
}

/* Spans begin at qblocks 0, 3, 3 + 8 ..: some are partial at the end. */
static size_t span_end(size_t begin, size_t count)
{
    size_t end = begin + (begin ? 8 : 3) * 256;
    return end < count ? end : count;
}

static void read_back(struct tensor *host, const struct tensor *d)
{
    size_t wide = host->count * sizeof(float);
    MUST(device_read(host->master, d->master, wide));
    MUST(device_read(host->grad, d->grad, wide));
    MUST(device_read(host->param, d->param, wide));
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        MUST(device_read(
                host->state[lane], d->state[lane], lane_bytes(host, lane)));
        MUST(device_read(
                host->scale[lane], d->scale[lane], scale_bytes(host, lane)));
    }
    MUST(device_read(
            host->block_v, d->block_v,
            (size_t)host->shape.blocks.count * sizeof(float)));
    for (size_t at = 0; at < host->count; at = span_end(at, host->count))
        tensor_keep_param(host, at, span_end(at, host->count) - at);
}

static void update_twin(
        const struct tensor *d, const struct tensor *host,
        const struct optim_step *step, int64_t *sums)
{
    const struct optim_device *table = optim_device();
    const struct tensor_blocks *blocks = &d->shape.blocks;
    if (d->layout.lane[OPTIM_V] == OPTIM_BLOCKS) {
        double norm = tensor_norm(host);
        MUST(device_clear(sums, (size_t)blocks->count * 2 * sizeof *sums));
        MUST(table->add_block_sums(
                sums, blocks, d->grad, d->shape.grad_type, 0, d->count, norm));
        MUST(table->update_blocks(d->block_v, sums, blocks, step, norm));
    }
    for (size_t at = 0, to; at < d->count; at = to) {
        to = span_end(at, d->count);
        struct optim_span span = tensor_span(d, at, to - at);
        MUST(table->update(&span, step));
    }
}

static void update_plainly(struct tensor *t, const struct optim_step *step)
{
    for (size_t at = 0, to; at < t->count; at = to) {
        to = span_end(at, t->count);
        struct optim_span span = tensor_span(t, at, to - at);
        optim_update_plain(&span, step);
        tensor_keep_param(t, at, to - at);
    }
}

/* Three steps of a tensor and its twin, with new gradients or what it has. */
static void expect_equal_steps(
        struct tensor *plain, size_t skew, bool draws_grads)
{
    const struct shape *shape = &plain->shape;
    struct tensor seen = tensor_make(shape);
    struct heap heap = heap_make(64 * plain->count + (1 << 16));
    struct tensor twin = on_device(plain, &heap, skew);
    int64_t *sums = heap_copy(&heap, NULL, (size_t)shape->blocks.count * 16, 0);
    for (int t = 1; t <= 3; t++) {
        struct optim_step step = tensor_step(plain, t);
        if (draws_grads)
            tensor_draw_grad(plain, t);
        MUST(device_write(twin.grad, plain->grad, plain->count * 4));
        update_twin(&twin, plain, &step, sums);
        tensor_update_blocks(plain, &step);
        update_plainly(plain, &step);
        read_back(&seen, &twin);
        cr_assert(
                tensor_equal(plain, &seen), "%s, skew %zu: step %d",
                shape_text(shape), skew, t);
    }
    heap_drop(&heap);
    tensor_drop(&seen);
}

static void expect_equal(const struct shape *shape, size_t skew)
{
    struct tensor plain = tensor_make(shape);
    expect_equal_steps(&plain, skew, true);
    tensor_drop(&plain);
}

Test(cuda, updates_have_the_bits_of_the_definition)
{
    struct tensor_blocks blocks = fused_blocks(23, 211);
    struct shape shape;
    for (int k = 0; k < VARIANTS; k++)
        for (int kind = 0; kind < SHAPE_KINDS; kind++)
            if (shape_of_kind(kind, &variants[k], &blocks, &shape))
                expect_equal(&shape, 0);
}

Test(cuda, updates_of_unaligned_and_small_tensors_too)
{
    struct tensor_blocks all[] = {
            row_blocks(1, 1, 1), row_blocks(17, 15, 4), row_blocks(40, 211, 8)};
    for (int k = 0; k < VARIANTS; k++)
        for (int i = 0; i < 3; i++) {
            struct shape shape = {
                    .variant = &variants[k],
                    .grad_type = DTYPE_BF16,
                    .param_type = DTYPE_BF16,
                    .has_param = true,
                    .blocks = all[i]};
            expect_equal(&shape, i == 2 ? 4 : 0);
        }
}

/* --- the codec ------------------------------------------------------------ */

/* Values of every magnitude, under scales that are tame and wild. An update
 * whose rate is 0 and whose betas keep everything decodes and encodes. */
Test(cuda, codes_of_every_scale_are_those_of_the_codec)
{
    static const float scales[] = {0,      1,       3e-40f,  1e-30f,
                                   3e-24f, 0x1p28f, 0x1p29f, 3e38f};
    struct shape shape = {
            .variant = &variants[ADAMW_8BIT], .blocks = row_blocks(64, 256, 1)};
    struct tensor plain = tensor_make(&shape);
    plain.options.adam_beta1 = plain.options.adam_beta2 = 0.75;
    for (size_t i = 0; i < plain.count; i++) {
        ((uint8_t *)plain.state[OPTIM_M])[i] = (uint8_t)(i * 37);
        ((uint8_t *)plain.state[OPTIM_V])[i] = (uint8_t)(i * 101);
    }
    for (size_t q = 0; q < plain.count / 256; q++) {
        plain.scale[OPTIM_M][q] = scales[q % 8];
        plain.scale[OPTIM_V][q] = scales[q / 8 % 8];
    }
    expect_equal_steps(&plain, 0, false);
    tensor_drop(&plain);
}

/* --- sums ----------------------------------------------------------------- */

enum { ODD = 300 }; /* elements, with an infinity and NaN */

static void expect_squares(enum dtype type, size_t count, size_t skew)
{
    size_t width = dtype_bytes(type);
    static const float odd[] = {INFINITY, NAN};
    ZD_FREED char *grad = grad_draw(type, count);
    if (count == ODD) {
        dtype_convert(grad + 4 * width, type, odd, DTYPE_FP32, 1);
        dtype_convert(grad + 290 * width, type, odd + 1, DTYPE_FP32, 1);
    }
    struct heap heap = heap_make(4 * count + 4096);
    void *there = heap_copy(&heap, grad, count * width, skew);
    struct exact_sum expected = {0}, seen;
    struct exact_sum *sum = heap_copy(&heap, &expected, sizeof expected, 0);
    for (int times = 0; times < 2; times++) {
        optim_add_squares(&expected, grad, type, count);
        MUST(optim_device()->add_squares(sum, there, type, count));
    }
    MUST(device_read(&seen, sum, sizeof seen));
    exact_sum_carry(&expected);
    int64_t nonfinite = count == ODD ? 2 * 2 : 0;
    cr_expect_eq(seen.nonfinite, nonfinite);
    cr_expect_eq(
            seen.pending, (int64_t)(2 * ((count + 255) / 256)) - nonfinite);
    exact_sum_carry(&seen);
    cr_expect(
            memcmp(&seen, &expected, sizeof seen) == 0, "%s, %zu elements",
            dtype_name(type), count);
    heap_drop(&heap);
}

Test(cuda, squares_have_the_bits_of_their_definition)
{
    /* 1024: whole pieces for a warp; its packs need 16 bytes */
    static const size_t counts[] = {0,    1,    9,     255, 256,
                                    1000, 1024, 50001, ODD, 65536};
    for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        for (int k = 0; k < 10; k++)
            for (size_t skew = 0; skew <= 4; skew += 4)
                expect_squares((enum dtype)type, counts[k], skew);
}

/* The two words of a block as one number. */
static __int128 joined(const int64_t *words)
{
    return ((__int128)words[0] << 42) + words[1];
}

/* The tensor in one run or in two, each of which begins at a multiple of 256.
 */
static void expect_block_sums(
        const struct tensor_blocks *blocks, enum dtype type, size_t cut)
{
    size_t count = (size_t)(blocks->rows * blocks->columns);
    size_t words = (size_t)blocks->count * 2, bytes = words * sizeof(int64_t);
    ZD_FREED void *grad = grad_draw(type, count);
    struct heap heap = heap_make(8 * count + 2 * bytes + 4096);
    char *there = heap_copy(&heap, grad, count * dtype_bytes(type), 0);
    ZD_FREED int64_t *expected = calloc(words, sizeof *expected);
    ZD_FREED int64_t *seen = calloc(words, sizeof *seen);
    int64_t *sums = heap_copy(&heap, seen, bytes, 0);
    optim_add_block_sums(expected, blocks, grad, type, 0, count, 3.5);
    MUST(optim_device()->add_block_sums(
            sums, blocks, there, type, 0, cut, 3.5));
    MUST(optim_device()->add_block_sums(
            sums, blocks, there + cut * dtype_bytes(type), type, cut,
            count - cut, 3.5));
    MUST(device_read(seen, sums, bytes));
    for (int64_t b = 0; b < blocks->count; b++)
        cr_expect(
                joined(seen + 2 * b) == joined(expected + 2 * b),
                "%s, cut at %zu: block %d", dtype_name(type), cut, (int)b);
    heap_drop(&heap);
}

Test(cuda, block_sums_are_those_of_the_cpu_however_cut)
{
    struct tensor_blocks all[] = {
            fused_blocks(301, 47), row_blocks(64, 256, 8),
            row_blocks(64, 777, 1), row_blocks(50001, 1, 50001)};
    for (int k = 0; k < 4; k++)
        for (int type = DTYPE_FP32; type <= DTYPE_FP16; type++)
            for (size_t cut = 0; cut < 10240; cut += 5120)
                expect_block_sums(&all[k], (enum dtype)type, cut);
}

/* --- conversions ---------------------------------------------------------- */

/* Any bits: numbers, infinities and NaN of every kind. */
static void *draw_bits(enum dtype type, size_t count)
{
    float *wide = malloc(count * sizeof *wide);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)rng_u64(7, (uint64_t)type, i);
        if (i % 2) /* near to what 16 bits can hold */
            bits = (bits & 0x80ffffffu) | (0x30000000u + (bits & 0x17000000u));
        memcpy(wide + i, &bits, sizeof bits);
    }
    if (type != DTYPE_FP32)
        for (size_t i = 0; i < count; i++)
            ((uint16_t *)wide)[i] = (uint16_t)rng_u64(8, 0, i);
    return wide;
}

enum way { CONVERT, ROUND, NARROW }; /* the last two of fp32, in place */

static void expect_conversion(
        enum way way, enum dtype from, enum dtype to, size_t count, size_t skew)
{
    const struct optim_device *table = optim_device();
    size_t width = dtype_bytes(way == ROUND ? DTYPE_FP32 : to);
    void *in = draw_bits(from, count), *expected = in,
         *seen = malloc(4 * count + 1);
    struct heap heap = heap_make(8 * count + 4096);
    void *source = heap_copy(&heap, in, count * dtype_bytes(from), skew);
    void *target = source;
    if (way == ROUND) {
        MUST(table->round(source, to, count));
        dtype_round(in, to, count);
    } else if (way == NARROW) {
        MUST(table->narrow(source, to, count));
        dtype_narrow_in_place(in, to, count);
    } else {
        target = heap_copy(&heap, NULL, count * width, 0);
        expected = malloc(count * width + 1);
        MUST(table->convert(target, to, source, from, count));
        dtype_convert(expected, to, in, from, count);
    }
    MUST(device_read(seen, target, count * width));
    cr_expect(
            memcmp(seen, expected, count * width) == 0,
            "way %d, %s to %s, %zu, skew %zu", way, dtype_name(from),
            dtype_name(to), count, skew);
    heap_drop(&heap);
    if (expected != in)
        free(expected);
    free(in);
    free(seen);
}

Test(cuda, conversions_have_the_bits_of_the_cpu)
{
    static const size_t counts[] = {0,    1,    7,    8,    255,
                                    2047, 2048, 2049, 4097, 70001};
    for (int k = 0; k < 10; k++)
        for (int to = DTYPE_FP32; to <= DTYPE_FP16; to++) {
            for (int from = DTYPE_FP32; from <= DTYPE_FP16; from++)
                for (size_t skew = 0; skew <= 4; skew += 4)
                    expect_conversion(
                            CONVERT, (enum dtype)from, (enum dtype)to,
                            counts[k], skew);
            for (int way = ROUND; way <= NARROW && to != DTYPE_FP32; way++)
                expect_conversion(
                        (enum way)way, DTYPE_FP32, (enum dtype)to, counts[k],
                        0);
        }
}

/* --- states --------------------------------------------------------------- */

Test(cuda, cleared_states_are_those_of_the_cpu)
{
    enum { COUNT = 1000, BYTES = 4096 };
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (int format = OPTIM_NONE; format <= OPTIM_8BIT; format++) {
            char expected[BYTES], seen[BYTES];
            float scales[4] = {9, 9, 9, 9}, seen_scales[4] = {9, 9, 9, 9};
            struct heap heap = heap_make(1 << 14);
            memset(expected, 9, BYTES);
            char *values = heap_copy(&heap, expected, BYTES, 0);
            float *there = heap_copy(&heap, scales, sizeof scales, 0);
            MUST(optim_device()->lane_clear(
                    (enum optim_lane)lane, (enum optim_format)format, values,
                    there, COUNT));
            optim_lane_clear(
                    (enum optim_lane)lane, (enum optim_format)format, expected,
                    scales, COUNT);
            MUST(device_read(seen, values, BYTES));
            MUST(device_read(seen_scales, there, sizeof scales));
            cr_expect(memcmp(seen, expected, BYTES) == 0);
            cr_expect(memcmp(seen_scales, scales, sizeof scales) == 0);
            heap_drop(&heap);
        }
}
