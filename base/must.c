#include "base/must.h"

#include "base/status.h"

#include <stdlib.h>
#include <unistd.h>

void zd_out_of_memory(void)
{
    if (zd_error_get()->status != ZD_ERR_MEMORY) {
        zd_error_clear();
        ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    }
    zd_error_print(stderr, zd_error_get());
    /* else another thread is blocked on stdout's reader */
    if (ftrylockfile(stdout) == 0)
        fflush(stdout);
    _exit(zd_exit_code(ZD_ERR_MEMORY));
}

void *zd_must(void *memory)
{
    if (!memory)
        zd_out_of_memory();
    return memory;
}

void *zd_grow(void *array, size_t *capacity, size_t needed, size_t bytes)
{
    enum { LEAST = 16 };
    if (needed <= *capacity)
        return array;
    *capacity = *capacity ? 2 * *capacity : LEAST;
    if (*capacity < needed)
        *capacity = needed;
    return zd_must(reallocarray(array, *capacity, bytes));
}

void *zd_array(size_t count, size_t bytes)
{
    return zd_must(calloc(count ? count : 1, bytes));
}
