#include "comm/nccl/door.h"

#include "base/library.h"
#include "comm/nccl/nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nccl_functions table;
static const char *missing; /* the first function that the library lacks */
static bool is_open;
static char why[512];

static void open_library(void)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    /* its monitor would listen on a port, for anyone of this host */
    setenv("NCCL_RAS_ENABLE", "0", 0);
    void *library = library_open(names, why, sizeof why);
    if (!library)
        return;
#define FIND(name)                                                             \
    *(void **)&table.name = dlsym(library, "nccl" #name);                      \
    if (!table.name)                                                           \
        missing = "nccl" #name;
    NCCL_FUNCTIONS(FIND)
#undef FIND
    if (missing || table.GetVersion(&table.version) != ncclSuccess)
        return;
    ZD_PRINT(
            table.version_text, "nccl %d.%d.%d", table.version / 10000,
            table.version / 100 % 100, table.version % 100);
    is_open = true;
}

enum zd_status nccl_open(const struct nccl_functions **functions_out)
{
    pthread_once(&once, open_library);
    if (is_open) {
        *functions_out = &table;
        return ZD_OK;
    }
    if (missing)
        ZD_FAIL(ZD_ERR_UNFIT, "E1231",
                "this libnccl.so.2 is too old: it lacks %s", missing);
    else
        ZD_FAIL(ZD_ERR_UNFIT, "E1231", "no libnccl.so.2: %s", why);
    return zd_fail_help(
            "put the folder of libnccl.so.2 into ZEROD_LIBRARY_PATH or "
            "LD_LIBRARY_PATH, or comm.backend = \"mpi\"");
}

enum zd_status nccl_available(void)
{
    const struct nccl_functions *functions;
    return nccl_open(&functions);
}

enum zd_status nccl_check(
        const struct nccl_functions *nccl, ncclResult_t result,
        const char *call, ncclComm_t comm)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return ZD_OK;
    const char *detail = nccl->GetLastError(comm);
    return ZD_FAIL(
            ZD_ERR_PEER, "E1233", "%s failed: %s%s%s", call,
            nccl->GetErrorString(result), detail && *detail ? ": " : "",
            detail ? detail : "");
}

enum zd_status comm_nccl_library(const char **name_out)
{
    const struct nccl_functions *functions;
    ZD_TRY(nccl_open(&functions));
    *name_out = functions->version_text;
    return ZD_OK;
}
