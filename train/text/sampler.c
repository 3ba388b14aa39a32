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

/* The likeliest first, of equal ones the lowest id. */
static int likelier(const void *a, const void *b, void *probabilities)
{
    const float *p = probabilities;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return p[x] != p[y] ? (p[x] > p[y] ? -1 : 1) : (x > y) - (x < y);
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
    qsort_r(order, (size_t)V, sizeof *order, likelier, logits);
    double mass = 0;
    int count = 0; /* of the nucleus */
    while (count < V && (count == 0 || mass < sampler->top_p))
        mass += logits[order[count++]];
    double u = mass *
               rng_uniform(sampler->seed, sampler->stream, (uint64_t)position);
    for (int i = 0; i + 1 < count; i++) {
        u -= logits[order[i]];
        if (u < 0)
            return order[i];
    }
    return order[count - 1];
}
