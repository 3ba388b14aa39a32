#include "kernels/embedding/embedding.h"

#include <string.h>

/* A counting sort. */
void embedding_order(
        int32_t *order, const int32_t *ids, int N, int rows, int32_t *scratch)
{
    memset(scratch, 0, ((size_t)rows + 1) * sizeof *scratch);
    for (int n = 0; n < N; n++)
        if (ids[n] >= 0)
            scratch[ids[n] + 1]++;
    for (int row = 0; row < rows; row++)
        scratch[row + 1] += scratch[row];
    int below = scratch[rows]; /* ids below 0 come last */
    for (int n = 0; n < N; n++)
        order[ids[n] < 0 ? below++ : scratch[ids[n]]++] = n;
}
