#include "base/device/host_pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum zd_status host_pages_take(size_t bytes, const char *kind, void **host_out)
{
    void *host =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused %zu bytes of %s memory: %s", bytes, kind,
                strerror(errno));
    madvise(host, bytes, MADV_HUGEPAGE);
    *host_out = host;
    return ZD_OK;
}
