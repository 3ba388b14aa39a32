#include "base/number/rng.h"
#include "train/text/generate.h"

#include <math.h>
#include <stdlib.h>

static int32_t argmax(const float *logits, int V)
{
    int32_t best = 0;
    for (int32_t i = 1; i < V; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Sift-down of a max-heap of ids ordered by probability, then by id: popping
 * it yields the likeliest tokens first without sorting all of V. */
static bool before(const float *p, int32_t a, int32_t b)
{
    return p[a] > p[b] || (p[a] == p[b] && a < b);
}

static void sift_down(const float *p, int32_t *heap, int count, int at)
{
    for (;;) {
        int child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && before(p, heap[child + 1], heap[child]))
            child++;
        if (!before(p, heap[child], heap[at]))
            return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* Logits become probabilities; returns their sum before normalizing. */
static void softmax(float *logits, int V, double temperature)
{
    double sum = 0;
    float top = logits[argmax(logits, V)];
    for (int i = 0; i < V; i++) {
        logits[i] = (float)exp(((double)logits[i] - top) / temperature);
        sum += logits[i];
    }
    for (int i = 0; i < V; i++)
        logits[i] = (float)(logits[i] / sum);
}

int32_t sampler_pick(
        const struct sampler *sampler, float *logits, int32_t *order, int V,
        int64_t position)
{
    if (sampler->temperature <= 0)
        return argmax(logits, V);
    softmax(logits, V, sampler->temperature);
    for (int32_t i = 0; i < V; i++)
        order[i] = i;
    for (int i = V / 2 - 1; i >= 0; i--)
        sift_down(logits, order, V, i);

    /* Take from the heap until the nucleus has its mass; the popped ids lie
     * after the heap, likeliest last. */
    double mass = 0;
    int count = V;
    while (count > 0) {
        int32_t id = order[0];
        order[0] = order[count - 1];
        order[--count] = id;
        sift_down(logits, order, count, 0);
        mass += logits[id];
        if (mass >= sampler->top_p)
            break;
    }
    double u = mass *
               rng_uniform(sampler->seed, sampler->stream, (uint64_t)position);
    for (int i = V - 1; i > count; i--) {
        u -= logits[order[i]];
        if (u < 0)
            return order[i];
    }
    return order[count];
}
