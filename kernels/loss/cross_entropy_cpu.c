#include "kernels/cpu/fast.h"
#include "kernels/loss/cross_entropy.h"

cross_entropy_fn FAST(cross_entropy);

static float row_top(const float *row, int V)
{
    vf top = vf_all(row[0]);
    int v = 0;
    for (; v + VL <= V; v += VL)
        top = vf_max(vf_load(row + v), top);
    float best = vf_top(top);
    for (; v < V; v++)
        best = row[v] > best ? row[v] : best;
    return best;
}

/* sum e^(row - top). Four sums side by side hide the latency of the adds. */
static float row_exp_sum(const float *row, float top, int V)
{
    vf sum[4] = {{0}};
    int v = 0;
    for (; v + 4 * VL <= V; v += 4 * VL)
        for (int i = 0; i < 4; i++)
            sum[i] += vf_exp(vf_load(row + v + i * VL) - top);
    for (; v + VL <= V; v += VL)
        sum[0] += vf_exp(vf_load(row + v) - top);
    if (v < V) {
        vf tail = vf_exp(vf_load_some(row + v, V - v) - top);
        float lanes[VL];
        vf_store(lanes, tail);
        for (int i = 0; i < V - v; i++)
            sum[1][i] += lanes[i];
    }
    return vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* Each row is in cache after the first of its three passes. e^x is computed
 * twice rather than stored, since dlogits may be narrower. */
enum zd_status FAST(cross_entropy)(
        struct stream *stream, float *losses, void *dlogits, const void *logits,
        const int32_t *targets, float dloss, int n, int V, int stride)
{
#pragma omp parallel for num_threads(threads_for((size_t)n *V))                \
        schedule(dynamic, 4)
    for (int i = 0; i < n; i++) {
        const float *row = (const float *)logits + (size_t)i * stride;
        elem *d = dlogits ? (elem *)dlogits + (size_t)i * stride : NULL;
        int target = targets[i];
        if (target < 0) {
            losses[i] = 0.0f;
            if (d)
                memset(d, 0, (size_t)V * sizeof *d);
            continue;
        }
        float top = row_top(row, V), sum = row_exp_sum(row, top, V);
        float shifted = row[target] - top;
        losses[i] = logf(sum) - shifted;
        if (!d)
            continue;
        float scale = dloss / sum;
        for (int v = 0; v < V; v += VL) {
            vf p = vf_exp(vf_load_some(row + v, V - v) - top) * scale;
            store_some(d + v, p, V - v);
        }
        vf at_target = (vf_exp(vf_all(shifted)) * scale) - dloss;
        store_some(d + target, at_target, 1);
    }
    return ZD_OK;
}
