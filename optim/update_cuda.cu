/* update_cuda.cu - the update of a span on a GPU, a warp for each qblock
 * (qblock_cuda.cuh).
 *
 * Bits: those of optim_update_plain. The arithmetic is that of
 * optim/optimizers.inc; this file is compiled without contraction into fused
 * multiply-adds, as the CPU's is (a NaN stays one, perhaps another). */
#include "base/number/philox.h"
#include "optim/codec_cuda.cuh"
#include "optim/qblock_cuda.cuh"

extern "C" {
#include "optim/device_cuda.h"
#include "optim/elements.h"
}

struct update_args {
    struct optim_span span; /* block_v, if any, of the device; blocks: below */
    struct tensor_blocks blocks;
    struct optim_factors factors;
    uint64_t seed;
    int64_t t;
    size_t first, end; /* qblocks of the span */
    bool is_aligned;   /* four elements of any array are one access */
};

/* --- chance --------------------------------------------------------------- */

/* optim_draws: a lane makes call `lane`, whose draws are those of
 * elements lane, lane + 32, .., and takes its own from the lanes that have
 * them. All lanes of the warp together. */
__device__ inline void draw(
        const struct update_args *args, uint64_t stream, size_t qblock,
        uint16_t (&draws)[LANE_ELEMENTS])
{
    uint32_t words[4];
    qblock += args->span.begin / OPTIM_QBLOCK;
    uint64_t first = (uint64_t)args->t << 32 | qblock * OPTIM_DRAW_CALLS;
    philox(args->seed, stream, first + (uint64_t)lane_of_warp(), words);
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        int e = element_of_lane(j), from = e % OPTIM_DRAW_CALLS;
        int quad = j / QUAD; /* words 0 and 1, or 2 and 3 */
        uint32_t low = __shfl_sync(ALL_LANES, words[2 * quad], from);
        uint32_t high = __shfl_sync(ALL_LANES, words[2 * quad + 1], from);
        uint32_t word = e / 64 % 2 ? high : low;
        draws[j] = (uint16_t)(e / 32 % 2 ? word >> 16 : word);
    }
}

/* bf16 by chance, and the values that were stored into x. */
__device__ inline void store_by_chance(
        const struct update_args *args, uint64_t stream, size_t qblock,
        void *array, const struct place *place, float (&x)[LANE_ELEMENTS])
{
    uint16_t draws[LANE_ELEMENTS];
    struct raw<2> out;
    draw(args, stream, qblock, draws);
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        uint16_t rounded = round_stochastic(x[j], draws[j]);
        raw_put(&out, j, rounded);
        x[j] = float_of_bits((uint32_t)rounded << 16);
    }
    raw_store(array, place, &out);
}

/* --- states --------------------------------------------------------------- */

template <int FORMAT> struct state_raw {
    struct raw<FORMAT == OPTIM_8BIT ? 1 : FORMAT == OPTIM_BF16 ? 2 : 4> raw;
    float scale;
};

template <int LANE, int FORMAT>
__device__ inline void fetch_state(
        struct state_raw<FORMAT> *out, const struct optim_span *span,
        const struct place *place)
{
    const int bytes = FORMAT == OPTIM_8BIT ? 1 : FORMAT == OPTIM_BF16 ? 2 : 4;
    if (FORMAT == OPTIM_NONE || FORMAT == OPTIM_BLOCKS)
        return;
    out->raw = raw_load<bytes>(span->lanes.state[LANE], place);
    if (FORMAT == OPTIM_8BIT)
        out->scale = span->lanes.scale[LANE][place->at / OPTIM_QBLOCK];
}

template <int LANE, int FORMAT>
__device__ inline void decode_state(
        float (&out)[LANE_ELEMENTS], const struct state_raw<FORMAT> *in,
        const struct codec_shared *codec)
{
    struct codec_decoder decoder = {};
    if (FORMAT == OPTIM_8BIT)
        decoder = codec_decoder_of<LANE>(codec, in->scale);
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
        if (FORMAT == OPTIM_8BIT)
            out[j] = codec_decode_one<LANE>(&decoder, (int)raw_at(&in->raw, j));
        else if (FORMAT == OPTIM_BF16)
            out[j] = float_of_bits(raw_at(&in->raw, j) << 16);
        else if (FORMAT == OPTIM_FP32)
            out[j] = float_of_bits(raw_at(&in->raw, j));
}

/* All lanes of the warp together. */
template <int LANE>
__device__ inline float scale_of(
        const float (&x)[LANE_ELEMENTS], const struct place *place)
{
    uint32_t largest = 0;
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        uint32_t size = codec_size<LANE>(x[j]);
        if (element_of_lane(j) < place->count && size > largest)
            largest = size;
    }
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        uint32_t other = __shfl_xor_sync(ALL_LANES, largest, offset);
        largest = other > largest ? other : largest;
    }
    return float_of_bits(largest);
}

template <int LANE>
__device__ inline void store_8bit(
        const struct optim_span *span, const struct place *place,
        const float (&x)[LANE_ELEMENTS], const struct codec_shared *codec)
{
    float scale = scale_of<LANE>(x, place);
    struct codec_encoder encoder = codec_encoder_of<LANE>(codec, scale);
    struct raw<1> codes;
    if (encoder.is_plain) { /* the same for the whole warp */
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            raw_put(&codes, j, codec_plain_code<LANE>());
    } else {
#pragma unroll
        for (int j = 0; j < LANE_ELEMENTS; j++)
            raw_put(&codes, j, codec_encode_one<LANE>(&encoder, x[j]));
    }
    raw_store(span->lanes.state[LANE], place, &codes);
    if (lane_of_warp() == 0)
        span->lanes.scale[LANE][place->at / OPTIM_QBLOCK] = scale;
}

template <int LANE, int FORMAT>
__device__ inline void store_state(
        const struct update_args *args, size_t qblock,
        const struct place *place, float (&x)[LANE_ELEMENTS],
        const struct codec_shared *codec)
{
    const struct optim_span *span = &args->span;
    if (FORMAT == OPTIM_8BIT)
        store_8bit<LANE>(span, place, x, codec);
    else if (FORMAT == OPTIM_BF16 && LANE == OPTIM_V)
        store_by_chance(
                args, ~span->tensor, qblock, span->lanes.state[LANE], place, x);
    else if (FORMAT == OPTIM_BF16)
        store_values(span->lanes.state[LANE], DTYPE_BF16, place, x);
    else if (FORMAT == OPTIM_FP32)
        store_values(span->lanes.state[LANE], DTYPE_FP32, place, x);
}

/* --- Adam-mini ------------------------------------------------------------ */

/* The v of a lane's elements. */
__device__ inline void expand_blocks(
        const struct update_args *args, const struct place *place,
        float (&v)[LANE_ELEMENTS])
{
    const struct tensor_blocks *blocks = &args->blocks;
    int64_t row = 0, column = 0, known = -1; /* the line that `value` is of */
    float value = 0;
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++) {
        int e = element_of_lane(j);
        if (j % QUAD == 0) {
            int64_t element = (int64_t)(args->span.begin + place->at) + e;
            row = element / blocks->columns;
            column = element % blocks->columns;
        }
        int64_t line = blocks->by_column ? column : row;
        if (e < place->count && line != known) {
            value = args->span.block_v[tensor_blocks_of_line(blocks, line)];
            known = line;
        }
        if (e < place->count)
            v[j] = value;
        if (++column == blocks->columns) {
            column = 0;
            row++;
        }
    }
}

/* --- the update ----------------------------------------------------------- */

template <int RULE>
__device__ inline float update_element(
        const struct optim_factors *f, float weight, float *m, float *v,
        float grad)
{
    switch (RULE) {
#define OPTIM_RULE(ID, element, ...)                                           \
    case OPTIM_RULE_##ID:                                                      \
        return element(f, weight, m, v, grad);
#include "optim/optimizers.inc"
    }
    return weight;
}

template <int RULE, int M, int V, bool WHOLE>
__device__ inline void update_qblock(
        const struct update_args *args, size_t qblock,
        const struct codec_shared *codec)
{
    const struct optim_span *span = &args->span;
    struct place place = place_of(span, qblock, WHOLE);
    struct fetched weights, grads;
    struct state_raw<M> m_raw;
    struct state_raw<V> v_raw;
    float weight[LANE_ELEMENTS], grad[LANE_ELEMENTS];
    float m[LANE_ELEMENTS] = {}, v[LANE_ELEMENTS] = {};

    fetch(&grads, span->grad, span->grad_type, &place);
    fetch(&weights, span->master, span->master_type, &place);
    fetch_state<OPTIM_M, M>(&m_raw, span, &place);
    fetch_state<OPTIM_V, V>(&v_raw, span, &place);
    decode_fetched(grad, &grads, span->grad_type);
    decode_fetched(weight, &weights, span->master_type);
    decode_state<OPTIM_M, M>(m, &m_raw, codec);
    decode_state<OPTIM_V, V>(v, &v_raw, codec);
    if (V == OPTIM_BLOCKS)
        expand_blocks(args, &place, v);
#pragma unroll
    for (int j = 0; j < LANE_ELEMENTS; j++)
        weight[j] = update_element<RULE>(
                &args->factors, weight[j], &m[j], &v[j], grad[j]);

    /* weights may take the place of the gradients of other lanes */
    __syncwarp(ALL_LANES);
    store_state<OPTIM_M, M>(args, qblock, &place, m, codec);
    store_state<OPTIM_V, V>(args, qblock, &place, v, codec);
    if (span->master_type == DTYPE_BF16)
        store_by_chance(
                args, span->tensor, qblock, span->master, &place, weight);
    else
        store_values(span->master, DTYPE_FP32, &place, weight);
    if (span->param)
        store_values(span->param, span->param_type, &place, weight);
}

enum { UPDATE_THREADS = 256, UPDATE_WARPS = UPDATE_THREADS / WARP };

/* WHOLE: all qblocks are, and four elements of any array are one access. A
 * separate kernel: in one with both ways the compiler lets them share stores
 * of single elements. */
template <int RULE, int M, int V, bool WHOLE>
static __global__ void __launch_bounds__(UPDATE_THREADS)
        update_kernel(const struct update_args args)
{
    __shared__ struct codec_shared codec;
    if (M == OPTIM_8BIT || V == OPTIM_8BIT)
        codec_load(&codec);
    size_t step = (size_t)gridDim.x * UPDATE_WARPS;
    size_t qblock = args.first + (size_t)blockIdx.x * UPDATE_WARPS +
                    (size_t)warp_of_block();
    for (; qblock < args.end; qblock += step)
        update_qblock<RULE, M, V, WHOLE>(&args, qblock, &codec);
}

/* --- launches ------------------------------------------------------------- */

template <int RULE, int M, int V, bool WHOLE>
static enum zd_status update_launch_some(const struct update_args *args)
{
    /* a few turns for each warp of the largest GPU: tables are read once */
    enum { MOST_BLOCKS = 4096 };
    int64_t warps = (int64_t)args->end - (int64_t)args->first;
    if (warps <= 0)
        return ZD_OK;
    ZD_LAUNCH(
            (update_kernel<RULE, M, V, WHOLE>),
            grid_for(warps, UPDATE_WARPS, MOST_BLOCKS), UPDATE_THREADS, 0,
            device_cuda_stream(NULL), *args);
    return ZD_OK;
}

/* Whole qblocks, and the last one where it is not. */
template <int RULE, int M, int V>
static enum zd_status update_launch(const struct update_args *args)
{
    struct update_args whole = *args, rest = *args;
    size_t count = args->is_aligned ? args->span.count / OPTIM_QBLOCK : 0;
    if (count < whole.end)
        whole.end = count;
    if (rest.first < count)
        rest.first = count;
    ZD_TRY((update_launch_some<RULE, M, V, true>(&whole)));
    return update_launch_some<RULE, M, V, false>(&rest);
}

/* The lanes that a rule has. */
template <int RULE> struct rule_lanes;
#define OPTIM_RULE(ID, element, NEEDS, M, V)                                   \
    template <> struct rule_lanes<OPTIM_RULE_##ID> {                           \
        static const bool has_m = M, has_v = V;                                \
        static const bool by_block =                                           \
                OPTIM_NEEDS_##NEEDS == OPTIM_NEEDS_BLOCK_SUMS;                 \
    };
#include "optim/optimizers.inc"

/* v is by block, or in the format of m, or in fp32 where Adam-mini's blocks are
 * single elements. */
template <int RULE, int M>
static enum zd_status update_launch_v(const struct update_args *args)
{
    typedef rule_lanes<RULE> lanes;
    const int like_m = lanes::by_block ? OPTIM_BLOCKS
                       : lanes::has_v  ? M
                                       : OPTIM_NONE;
    const int apart = like_m == M && lanes::has_v ? OPTIM_FP32 : like_m;
    if (args->span.layout.lane[OPTIM_V] == apart)
        return update_launch<RULE, M, apart>(args);
    return update_launch<RULE, M, like_m>(args);
}

template <int RULE>
static enum zd_status update_launch_m(const struct update_args *args)
{
    const bool has_m = rule_lanes<RULE>::has_m;
    switch (args->span.layout.lane[OPTIM_M]) {
    case OPTIM_8BIT:
        return update_launch_v<RULE, has_m ? OPTIM_8BIT : OPTIM_NONE>(args);
    case OPTIM_BF16:
        return update_launch_v<RULE, has_m ? OPTIM_BF16 : OPTIM_NONE>(args);
    default:
        return update_launch_v<RULE, has_m ? OPTIM_FP32 : OPTIM_NONE>(args);
    }
}

static enum zd_status launch(
        const struct update_args *args, enum optim_rule rule)
{
    switch (rule) {
#define OPTIM_RULE(ID, ...)                                                    \
    case OPTIM_RULE_##ID:                                                      \
        return update_launch_m<OPTIM_RULE_##ID>(args);
#include "optim/optimizers.inc"
    default:
        return ZD_OK;
    }
}

/* May four elements be read at once, from every array? */
static bool arrays_are_aligned(const struct optim_span *span)
{
    uintptr_t bits = (uintptr_t)span->master | (uintptr_t)span->grad |
                     (uintptr_t)span->param;
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        bits |= (uintptr_t)span->lanes.state[lane];
    return bits % 16 == 0;
}

/* 16-bit weights into the front of fp32 gradients: the weights of qblocks a ..
 * b lie over gradients a/2 .. b/2, so each launch takes as many as have been
 * read before it. */
static enum zd_status launch_doubling(
        struct update_args *args, enum optim_rule rule)
{
    size_t end = args->end;
    for (size_t first = 0, next = 1; first < end; first = next, next *= 2) {
        args->first = first;
        args->end = next < end ? next : end;
        ZD_TRY(launch(args, rule));
    }
    return ZD_OK;
}

extern "C" enum zd_status optim_update_cuda(
        const struct optim_span *span, const struct optim_step *step)
{
    struct update_args args = {};
    args.span = *span;
    args.factors = optim_factors_of(span, step);
    args.seed = step->seed;
    args.t = step->t;
    args.end = (span->count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK;
    args.is_aligned = arrays_are_aligned(span);
    if (span->layout.lane[OPTIM_V] == OPTIM_BLOCKS)
        args.blocks = *span->blocks;
    args.span.blocks = NULL;
    assert(span->begin % OPTIM_QBLOCK == 0);
    if (!span->count)
        return ZD_OK;
    bool narrows = span->param == span->grad &&
                   dtype_bytes(span->param_type) < dtype_bytes(span->grad_type);
    enum optim_rule rule = optim_rule_of(step->options, &span->layout);
    return narrows ? launch_doubling(&args, rule) : launch(&args, rule);
}
