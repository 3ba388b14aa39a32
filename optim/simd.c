/* simd.c - compiled once for each instruction set; meson.build names them. */
#include "optim/simd.h"

#include "optim/codec.h"
#include "optim/codec_tables.h"

#if defined(__AVX512F__)
#include "optim/simd_codec_avx512.h"
#else
#include "optim/simd_codec_avx2.h"
#endif

/* --- the codec ------------------------------------------------------------ */

INLINED void decode_group(
        enum optim_lane lane, const struct decoder *decoder,
        const uint8_t *codes, vf out[4])
{
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        out[k] = decode(lane, decoder, codes, k);
}

/* Ranks of m are -128 .. 127, so that packing, which saturates, turns -1.0
 * (128) into the entry next to it. */
INLINED void encode_group(
        enum optim_lane lane, const struct encoder *e, const vf in[4],
        uint8_t *codes)
{
    vi rank[4], low, high, all;
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        rank[k] = encode_ranks(lane, e, in[k]);
    if (lane == OPTIM_M) {
        low = OP(packs_epi32)(rank[0], rank[1]);
        high = OP(packs_epi32)(rank[2], rank[3]);
        all = OP(packs_epi16)(low, high);
        all = OP_BITS(xor)(all, OP(set1_epi8)(0x7f)); /* 127 - rank */
    } else {
        const vi minus_one = OP(set1_epi16)(-1);
        low = OP(add_epi16)(OP(packus_epi32)(rank[0], rank[1]), minus_one);
        high = OP(add_epi16)(OP(packus_epi32)(rank[2], rank[3]), minus_one);
        all = OP(packus_epi16)(low, high);
    }
    OP_BITS(storeu)((void *)codes, in_order(all));
}

static bool is_tame(float scale)
{
    return scale >= CODEC_TAME_MIN && scale <= CODEC_TAME_MAX;
}

INLINED void load_group(const float *at, vf x[4])
{
    for (int k = 0; k < 4; k++)
        x[k] = vf_load(at + k * LANES);
}

INLINED void store_group(float *at, const vf x[4])
{
    for (int k = 0; k < 4; k++)
        vf_store(at + k * LANES, x[k]);
}

static void encode_under(
        enum optim_lane lane, const float *values, uint8_t *codes, float *scale)
{
    if (!is_tame(*scale)) {
        codec_encode_plain(lane, values, OPTIM_QBLOCK, codes, scale);
        return;
    }
    struct encoder e = encoder_of(lane);
    encoder_scale(&e, lane, *scale);
    for (size_t i = 0; i < OPTIM_QBLOCK; i += GROUP) {
        vf x[4];
        load_group(values + i, x);
        if (lane == OPTIM_M)
            encode_group(OPTIM_M, &e, x, codes + i);
        else
            encode_group(OPTIM_V, &e, x, codes + i);
    }
}

static void encode_qblock(
        enum optim_lane lane, const float *values, uint8_t *codes, float *scale)
{
    vi max = vi_set(0);
    for (size_t i = 0; i < OPTIM_QBLOCK; i += LANES)
        max = lane == OPTIM_M ? vmax_signed(max, vf_load(values + i))
                              : vmax_unsigned(max, vf_load(values + i));
    *scale = vmax_float(max);
    encode_under(lane, values, codes, scale);
}

static void decode_qblock(
        enum optim_lane lane, const uint8_t *codes, float scale, float *values)
{
    if (!is_tame(scale) && scale != 0) {
        codec_decode_plain(lane, codes, scale, OPTIM_QBLOCK, values);
        return;
    }
    struct decoder d = decoder_of(lane, scale);
    for (size_t i = 0; i < OPTIM_QBLOCK; i += GROUP) {
        vf x[4];
        if (lane == OPTIM_M)
            decode_group(OPTIM_M, &d, codes + i, x);
        else
            decode_group(OPTIM_V, &d, codes + i, x);
        store_group(values + i, x);
    }
}

/* --- AdamW ---------------------------------------------------------------- */

struct factors {
    vf grad_scale, keep, beta1, gain1, beta2, gain2, root_scale, epsilon,
            minus_rate;
};

INLINED struct factors factors_of(const struct optim_factors *f)
{
    return (struct factors){
            .grad_scale = vf_set(f->grad_scale),
            .keep = vf_set(f->keep),
            .beta1 = vf_set(f->beta1),
            .gain1 = vf_set(f->gain1),
            .beta2 = vf_set(f->beta2),
            .gain2 = vf_set(f->gain2),
            .root_scale = vf_set(f->root_scale),
            .epsilon = vf_set(f->epsilon),
            .minus_rate = vf_set(-f->adam_rate)};
}

/* adamw_element of optimizers.inc. */
INLINED vf element(const struct factors *f, vf weight, vf *m, vf *v, vf grad)
{
    vf g = grad * f->grad_scale;
    *m = vf_fma(f->gain1, g, f->beta1 * *m);
    *v = vf_fma(f->gain2 * g, g, f->beta2 * *v);
    vf denominator = vf_fma(OP(sqrt_ps)(*v), f->root_scale, f->epsilon);
    return vf_fma(f->minus_rate, *m / denominator, weight * f->keep);
}

INLINED void load_grads(const void *grad, enum dtype type, size_t at, vf g[4])
{
    const uint16_t *grad16 = (const uint16_t *)grad + at;
    if (type == DTYPE_BF16)
        for (int k = 0; k < 4; k++)
            g[k] = vf_from_bf16(grad16 + k * LANES);
    else if (type == DTYPE_FP16)
        for (int k = 0; k < 4; k++)
            g[k] = vf_from_fp16(grad16 + k * LANES);
    else
        load_group((const float *)grad + at, g);
}

/* A second destination of the new weights, besides the master. */
struct outlet {
    void *param; /* or NULL */
    enum dtype type;
    bool streams; /* bypass the caches: it is not read soon */
};

static struct outlet outlet_of(const struct optim_span *span)
{
    bool is_apart = span->param != span->grad;
    bool is_aligned = (uintptr_t)span->param % (2 * LANES * 2) == 0;
    return (struct outlet){
            span->param, span->param_type, is_apart && is_aligned};
}

INLINED void store_params(const struct outlet *out, size_t at, const vf p[4])
{
    uint16_t *param16 = (uint16_t *)out->param + at;
    if (!out->param)
        return;
    if (out->type == DTYPE_BF16)
        for (int k = 0; k < 4; k += 2)
            vf_to_bf16(param16 + k * LANES, p[k], p[k + 1], out->streams);
    else if (out->type == DTYPE_FP16)
        for (int k = 0; k < 4; k++)
            vf_to_fp16(param16 + k * LANES, p[k]);
    else
        store_group((float *)out->param + at, p);
}

/* Vector code does not narrow NaN correctly; `seen`: this qblock has one. */
INLINED void repair_params(
        const struct outlet *out, const float *master, size_t at, vf seen)
{
    if (vf_has_nan(seen) && out->param)
        dtype_convert(
                (char *)out->param + at * dtype_bytes(out->type), out->type,
                master + at, DTYPE_FP32, OPTIM_QBLOCK);
}

/* New weights of a group, from states already in registers. */
INLINED void step_group(
        const struct factors *f, const struct optim_span *span,
        const struct outlet *out, size_t at, vf m[4], vf v[4], vf *seen)
{
    float *master = (float *)span->master + at;
    vf g[4], p[4];
    load_grads(span->grad, span->grad_type, at, g);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        p[k] = element(f, vf_load(master + k * LANES), &m[k], &v[k], g[k]);
        vf_store(master + k * LANES, p[k]);
        *seen = vf_fma(p[k], vf_set(0), *seen);
    }
    store_params(out, at, p);
}

static void adamw_fp32(
        const struct optim_span *span, const struct optim_factors *factors,
        size_t count)
{
    const struct factors f = factors_of(factors);
    const struct outlet out = outlet_of(span);
    float *ms = span->lanes.state[OPTIM_M], *vs = span->lanes.state[OPTIM_V];
    for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
        vf seen = vf_set(0);
        for (size_t i = at; i < at + OPTIM_QBLOCK; i += GROUP) {
            vf m[4], v[4];
            load_group(ms + i, m);
            load_group(vs + i, v);
            step_group(&f, span, &out, i, m, v, &seen);
            store_group(ms + i, m);
            store_group(vs + i, v);
        }
        repair_params(&out, span->master, at, seen);
    }
}

/* The states of a qblock before they are rounded. */
struct scratch {
    _Alignas(64) float m[OPTIM_QBLOCK], v[OPTIM_QBLOCK];
};

static void adamw_8bit(
        const struct optim_span *span, const struct optim_factors *factors,
        size_t count)
{
    const struct factors f = factors_of(factors);
    const struct outlet out = outlet_of(span);
    struct encoder em = encoder_of(OPTIM_M), ev = encoder_of(OPTIM_V);
    struct scratch s;
    for (size_t at = 0; at < count; at += OPTIM_QBLOCK) {
        uint8_t *mc = (uint8_t *)span->lanes.state[OPTIM_M] + at;
        uint8_t *vc = (uint8_t *)span->lanes.state[OPTIM_V] + at;
        float *m_scale = span->lanes.scale[OPTIM_M] + at / OPTIM_QBLOCK;
        float *v_scale = span->lanes.scale[OPTIM_V] + at / OPTIM_QBLOCK;
        bool tame = (is_tame(*m_scale) || *m_scale == 0) &&
                    (is_tame(*v_scale) || *v_scale == 0);
        struct decoder dm = decoder_of(OPTIM_M, *m_scale);
        struct decoder dv = decoder_of(OPTIM_V, *v_scale);
        if (!tame) {
            decode_qblock(OPTIM_M, mc, *m_scale, s.m);
            decode_qblock(OPTIM_V, vc, *v_scale, s.v);
        }

        vf seen = vf_set(0);
        vi m_max = vi_set(0), v_max = vi_set(0);
        for (size_t i = 0; i < OPTIM_QBLOCK; i += GROUP) {
            vf m[4], v[4];
            if (tame) {
                decode_group(OPTIM_M, &dm, mc + i, m);
                decode_group(OPTIM_V, &dv, vc + i, v);
            } else {
                load_group(s.m + i, m);
                load_group(s.v + i, v);
            }
            step_group(&f, span, &out, at + i, m, v, &seen);
            for (int k = 0; k < 4; k++) {
                m_max = vmax_signed(m_max, m[k]);
                v_max = vmax_unsigned(v_max, v[k]);
            }
            store_group(s.m + i, m);
            store_group(s.v + i, v);
        }
        repair_params(&out, span->master, at, seen);

        *m_scale = vmax_float(m_max);
        *v_scale = vmax_float(v_max);
        if (is_tame(*m_scale) && is_tame(*v_scale)) {
            encoder_scale(&em, OPTIM_M, *m_scale);
            encoder_scale(&ev, OPTIM_V, *v_scale);
            for (size_t i = 0; i < OPTIM_QBLOCK; i += GROUP) {
                vf x[4];
                load_group(s.m + i, x);
                encode_group(OPTIM_M, &em, x, mc + i);
                load_group(s.v + i, x);
                encode_group(OPTIM_V, &ev, x, vc + i);
            }
        } else {
            encode_under(OPTIM_M, s.m, mc, m_scale);
            encode_under(OPTIM_V, s.v, vc, v_scale);
        }
    }
}

const struct simd_code SIMD_CODE = {
        .encode = encode_qblock,
        .decode = decode_qblock,
        .adamw_8bit = adamw_8bit,
        .adamw_fp32 = adamw_fp32,
};
