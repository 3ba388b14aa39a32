#include "kernels/cpu/fast.h"
#include "kernels/loss/cross_entropy.h"

cross_entropy_fn FAST(cross_entropy);
row_scores_fn FAST(row_scores);
row_losses_fn FAST(row_losses);

ALWAYS_INLINE vf mapped(vf z, const struct logit_map *map)
{
    if (!map)
        return z;
    vf y = z * map->scale;
    return map->softcap > 0 ? map->softcap * vf_tanh(y / map->softcap) : y;
}

/* What the gradient of y = mapped(z) is multiplied by. */
ALWAYS_INLINE vf slope(vf y, const struct logit_map *map)
{
    vf part = map->softcap > 0 ? y / map->softcap : (vf){0};
    return map->scale * (1.0f - part * part);
}

static float row_top(const float *row, int V)
{
    vf top[4];
    int v = 0;
    for (int i = 0; i < 4; i++)
        top[i] = vf_all(row[0]);
    for (; v + 4 * VL <= V; v += 4 * VL)
        for (int i = 0; i < 4; i++)
            top[i] = vf_max(vf_load(row + v + i * VL), top[i]);
    for (; v + VL <= V; v += VL)
        top[0] = vf_max(vf_load(row + v), top[0]);
    float best = vf_top(vf_max(vf_max(top[0], top[1]), vf_max(top[2], top[3])));
    for (; v < V; v++)
        best = row[v] > best ? row[v] : best;
    return best;
}

ALWAYS_INLINE vf exp_below(vf y, float top)
{
    return vf_exp_scaled(y, 1.0f, top);
}

/* sum e^(row - top). Four sums side by side hide the latency of the adds. */
ALWAYS_INLINE float row_exp_sum(
        const float *row, float top, int V, const struct logit_map *map)
{
    vf sum[4] = {{0}};
    int v = 0;
    for (; v + 4 * VL <= V; v += 4 * VL)
        for (int i = 0; i < 4; i++)
            sum[i] += exp_below(mapped(vf_load(row + v + i * VL), map), top);
    for (; v + VL <= V; v += VL)
        sum[0] += exp_below(mapped(vf_load(row + v), map), top);
    if (v < V) {
        vf tail = exp_below(mapped(vf_load_some(row + v, V - v), map), top);
        float lanes[VL];
        vf_store(lanes, tail);
        for (int i = 0; i < V - v; i++)
            sum[1][i] += lanes[i];
    }
    return vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Returns the sum of e^(y - *top). For a narrow type one pass less: *top is the
 * greatest of the first logits only, unless the sum becomes too large. The map
 * grows, so that the greatest logit stays it. */
ALWAYS_INLINE float row_weight(
        float *top, const float *row, int V, const struct logit_map *map)
{
    enum { FIRST = 1024 };
    if (KERNEL_TYPE != KERNEL_FP32 && V > FIRST) {
        *top = mapped(vf_all(row_top(row, FIRST)), map)[0];
        float sum = row_exp_sum(row, *top, V, map);
        if (sum < 1e30f)
            return sum;
    }
    *top = mapped(vf_all(row_top(row, V)), map)[0];
    return row_exp_sum(row, *top, V, map);
}

/* Part of the gradient: e^(y - top) scale, by the map's slope. */
ALWAYS_INLINE vf
gradient(vf z, float top, float scale, const struct logit_map *map)
{
    vf y = mapped(z, map), p = vf_exp_rough(y, top) * scale;
    return map ? p * slope(y, map) : p;
}

ALWAYS_INLINE void gradients(
        elem *d, const float *row, float top, float scale, int V,
        const struct logit_map *map)
{
    int v = 0;
    for (; v + 2 * VL <= V; v += 2 * VL)
        store_both(
                d + v, gradient(vf_load(row + v), top, scale, map),
                gradient(vf_load(row + v + VL), top, scale, map));
    for (; v < V; v += VL)
        store_some(
                d + v, gradient(vf_load_some(row + v, V - v), top, scale, map),
                V - v);
}

/* The row is in cache after the first of its passes. e^x is computed twice
 * rather than stored, since dlogits may be narrower. */
ALWAYS_INLINE float row_loss(
        elem *d, const float *row, int target, float dloss, int V,
        const struct logit_map *map)
{
    float top, sum = row_weight(&top, row, V, map);
    vf wanted = mapped(vf_all(row[target]), map);
    float shifted = wanted[0] - top, scale = dloss / sum;
    if (!d)
        return logf(sum) - shifted;
    gradients(d, row, top, scale, V, map);
    vf at_target = (exp_below(wanted, top) * scale) - dloss;
    store_some(d + target, map ? at_target * slope(wanted, map) : at_target, 1);
    return logf(sum) - shifted;
}

enum zd_status FAST(cross_entropy)(
        struct stream *stream, const struct loss_rows *r)
{
    const struct logit_map *map = r->map;
    int V = r->slice.count;
#pragma omp parallel for num_threads(threads_for((size_t)r->n *V))             \
        schedule(dynamic, 4)
    for (int i = 0; i < r->n; i++) {
        size_t at = (size_t)i * r->stride;
        const float *row = (const float *)r->logits + at;
        elem *d = r->dlogits ? (elem *)r->dlogits + at : NULL;
        int target = r->targets[i];
        r->losses[i] = 0.0f;
        if (target < 0 && d)
            memset(d, 0, (size_t)V * sizeof *d);
        if (target >= 0)
            r->losses[i] = map ? row_loss(d, row, target, r->dloss, V, map)
                               : row_loss(d, row, target, r->dloss, V, NULL);
    }
    return ZD_OK;
}

/* --- of a slice of the vocabulary ----------------------------------------- */

enum zd_status FAST(row_scores)(
        struct stream *stream, struct row_score *scores,
        const struct loss_rows *r)
{
    int V = r->slice.count;
#pragma omp parallel for num_threads(threads_for((size_t)r->n *V))
    for (int i = 0; i < r->n; i++) {
        const float *row = (const float *)r->logits + (size_t)i * r->stride;
        int target = r->targets[i] - r->slice.first;
        struct row_score score = {ROW_NONE, 0, ROW_NONE};
        if (V > 0)
            score.sum = row_weight(&score.top, row, V, r->map);
        if (target >= 0 && target < V)
            score.target = mapped(vf_all(row[target]), r->map)[0];
        scores[i] = score;
    }
    return ZD_OK;
}

/* In the order of the slices. */
static struct row_score merged(
        const struct row_score *scores, int slices, int n, int i)
{
    struct row_score all = {ROW_NONE, 0, ROW_NONE};
    for (int s = 0; s < slices; s++) {
        const struct row_score *score = &scores[(size_t)s * n + i];
        all.top = fmaxf(all.top, score->top);
        all.target = fmaxf(all.target, score->target);
    }
    for (int s = 0; s < slices; s++) {
        const struct row_score *score = &scores[(size_t)s * n + i];
        all.sum += score->sum * expf(score->top - all.top);
    }
    return all;
}

ALWAYS_INLINE void slice_gradient(
        elem *d, const float *row, struct row_score all, int target,
        float dloss, int V, const struct logit_map *map)
{
    float scale = dloss / all.sum;
    for (int v = 0; v < V; v += VL) {
        vf y = mapped(vf_load_some(row + v, V - v), map);
        vf p = exp_below(y, all.top) * scale;
        if (target >= v && target < v + VL)
            p[target - v] -= dloss;
        store_some(d + v, map ? p * slope(y, map) : p, V - v);
    }
}

enum zd_status FAST(row_losses)(
        struct stream *stream, const struct loss_rows *r,
        const struct row_score *scores, int slices)
{
    int V = r->slice.count, columns = r->slice.columns, n = r->n;
#pragma omp parallel for num_threads(threads_for((size_t)n *columns))
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)i * r->stride;
        const float *row = (const float *)r->logits + at;
        elem *d = r->dlogits ? (elem *)r->dlogits + at : NULL;
        struct row_score all = merged(scores, slices, n, i);
        bool counts = r->targets[i] >= 0;
        int from = counts ? V : 0, target = r->targets[i] - r->slice.first;
        r->losses[i] = counts ? all.top + logf(all.sum) - all.target : 0;
        if (!d)
            continue;
        if (counts)
            slice_gradient(d, row, all, target, r->dloss, V, r->map);
        memset(d + from, 0, (size_t)(columns - from) * sizeof *d);
    }
    return ZD_OK;
}
