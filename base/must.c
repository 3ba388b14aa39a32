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
    fflush(stdout);
    _exit(zd_exit_code(ZD_ERR_MEMORY));
}

void *zd_must(void *memory)
{
    if (!memory)
        zd_out_of_memory();
    return memory;
}

void *zd_array(size_t count, size_t bytes)
{
    return zd_must(calloc(count ? count : 1, bytes));
}
