#include "kernels/embedding/embedding.h"

#include <string.h>

/* A counting sort. */
void embedding_order(
        int32_t *order, const int32_t *ids, int N, int rows, int32_t *scratch)
{
    memset(scratch, 0, ((size_t)rows + 1) * sizeof *scratch);
    for (int n = 0; n < N; n++)
        scratch[ids[n] + 1]++;
    for (int row = 0; row < rows; row++)
        scratch[row + 1] += scratch[row];
    for (int n = 0; n < N; n++)
        order[scratch[ids[n]]++] = n;
}
