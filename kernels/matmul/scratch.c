#include "kernels/matmul/scratch.h"

#include <pthread.h>
#include <stdlib.h>

struct scratch {
    struct scratch *next;
    void *memory;
    size_t bytes;
};

/* The unused blocks. A mutable global, because operations have no object. */
static struct scratch *free_blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct scratch *take_free(void)
{
    pthread_mutex_lock(&lock);
    struct scratch *scratch = free_blocks;
    if (scratch)
        free_blocks = scratch->next;
    pthread_mutex_unlock(&lock);
    return scratch;
}

enum zd_status scratch_acquire(size_t bytes, struct scratch **scratch_out)
{
    struct scratch *scratch = take_free();
    if (!scratch)
        scratch = calloc(1, sizeof *scratch);
    if (scratch && scratch->bytes < bytes) {
        free(scratch->memory);
        scratch->bytes = 0;
        if (posix_memalign(&scratch->memory, 4096, bytes) == 0)
            scratch->bytes = bytes;
        else
            scratch->memory = NULL;
    }
    if (!scratch || scratch->bytes < bytes) {
        free(scratch);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0611",
                "no memory for the panels of a matmul: %zu bytes", bytes);
    }
    *scratch_out = scratch;
    return ZD_OK;
}

void scratch_release(struct scratch *scratch)
{
    pthread_mutex_lock(&lock);
    scratch->next = free_blocks;
    free_blocks = scratch;
    pthread_mutex_unlock(&lock);
}

float *scratch_floats(struct scratch *scratch)
{
    return scratch->memory;
}
