#include "kernels/attention/attention.h"
#include "kernels/cpu/fast.h"

attention_decode_fn FAST(attention_decode);

/* Keys whose scores are kept at a time. */
enum { KEYS = 64 };

ALWAYS_INLINE float dot(const float *q, const elem *k, int D)
{
    vf sum = {0};
    for (int d = 0; d < D; d += VL)
        sum += vf_load_some(q + d, D - d) * load_some(k + d, D - d);
    return vf_sum(sum);
}

/* Running softmax as in attention_cpu.c, for one query of one head. */
static void decode_one(
        elem *out, const elem *q, const elem *k, const elem *v, int64_t stride,
        int count, int D, float scale, float softcap)
{
    float query[ATTENTION_MAX_D], sums[ATTENTION_MAX_D] = {0}, p[KEYS];
    float top = -INFINITY, sum = 0.0f;
    for (int d = 0; d < D; d++)
        query[d] = elem_to_float(q[d]) * scale;
    for (int first = 0; first < count; first += KEYS) {
        int keys = count - first < KEYS ? count - first : KEYS;
        float new_top = top;
        for (int j = 0; j < keys; j++) {
            p[j] = dot(query, k + (first + j) * stride, D);
            if (softcap > 0)
                p[j] = softcap * vf_tanh(vf_all(p[j] / softcap))[0];
            new_top = p[j] > new_top ? p[j] : new_top;
        }
        float rescale = vf_exp(vf_all(top - new_top))[0];
        sum *= rescale;
        for (int d = 0; d < D; d++)
            sums[d] *= rescale;
        for (int j = 0; j < keys; j += VL)
            vf_store_some(
                    p + j, vf_exp(vf_load_some(p + j, keys - j) - new_top),
                    keys - j);
        for (int j = 0; j < keys; j++) {
            const elem *row = v + (first + j) * stride;
            sum += p[j];
            for (int d = 0; d < D; d += VL)
                vf_store_some(
                        sums + d,
                        vf_load_some(sums + d, D - d) +
                                p[j] * load_some(row + d, D - d),
                        D - d);
        }
        top = new_top;
    }
    for (int d = 0; d < D; d += VL)
        store_some(out + d, vf_load_some(sums + d, D - d) / sum, D - d);
}

enum zd_status FAST(attention_decode)(
        struct stream *stream, const struct attention *a, int n, int past)
{
    const struct attention_shape *s = a->shape;
    int H = s->H, D = s->D, seen = s->window ? s->window : past + n;
    int64_t stride = (int64_t)s->KV * D;
    size_t work = (size_t)n * (size_t)(past + n) * (size_t)(H * D);
    assert(D <= ATTENTION_MAX_D);
#pragma omp parallel for num_threads(threads_for(work)) collapse(2)            \
        schedule(dynamic)
    for (int i = 0; i < n; i++)
        for (int h = 0; h < H; h++) {
            int end = past + i + 1, count = seen < end ? seen : end;
            int64_t at = (end - count) * stride + h / (H / s->KV) * D;
            decode_one(
                    (elem *)a->out + ((int64_t)i * H + h) * D,
                    (const elem *)a->q + i * s->q_stride + h * D,
                    (const elem *)a->k + at, (const elem *)a->v + at, stride,
                    count, D, s->scale, s->softcap);
        }
    return ZD_OK;
}
