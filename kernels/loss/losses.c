#include "kernels/loss/losses.h"

#include "kernels/loss/cross_entropy.h"

#include <math.h>

enum zd_status add_losses_cpu(
        struct stream *stream, struct exact_sum *sum, const float *losses,
        int n)
{
    for (int i = 0; i < n; i++)
        exact_sum_add(sum, losses[i]);
    return ZD_OK;
}

void logit_map_apply(const struct logit_map *map, float *logits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float y = map->scale * logits[i], cap = map->softcap;
        logits[i] = cap > 0 ? cap * tanhf(y / cap) : y;
    }
}
