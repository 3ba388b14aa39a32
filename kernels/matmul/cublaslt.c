#include "kernels/matmul/cublaslt.h"

#include "base/device/device_cuda.h"
#include "base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
static const char soname[] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);
#undef TEXT
#undef TEXT_OF

static const struct {
    const char *name;
    size_t offset; /* of the function's pointer in struct cublaslt */
} symbols[] = {
#define CALL(call, field) {#call, offsetof(struct cublaslt, field)},
        CUBLASLT_CALLS(CALL)
#undef CALL
};

static enum zd_status not_there(const char *why)
{
    ZD_FAIL(ZD_ERR_UNFIT, "E1220", "matmuls on a GPU need cuBLASLt: %s", why);
    return zd_fail_help(
            "put the folder of %s into ZEROD_LIBRARY_PATH or LD_LIBRARY_PATH "
            "(it comes with the CUDA toolkit, or: pip install nvidia-cublas), "
            "or train on the CPU: device.backend = \"cpu\"",
            soname);
}

static enum zd_status bind_symbols(void *library, struct cublaslt *api)
{
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) {
            ZD_FAIL(ZD_ERR_UNFIT, "E1221", "%s has no %s", soname,
                    symbols[i].name);
            return zd_fail_help(
                    "install cuBLAS %d.%d or newer", CUBLAS_VER_MAJOR,
                    CUBLAS_VER_MINOR);
        }
        memcpy((char *)api + symbols[i].offset, &address, sizeof address);
    }
    return ZD_OK;
}

static enum zd_status open_now(struct cublaslt *api)
{
    const char *file = getenv("ZEROD_CUBLASLT");
    const char *const names[] = {
            file && *file ? file : soname,
            file && *file ? NULL : "libcublasLt.so",
            NULL,
    };
    char why[512];
    void *library = library_open(names, why, sizeof why);
    if (!library)
        return not_there(why);
    ZD_TRY(bind_symbols(library, api));
    size_t version = api->version();
    ZD_PRINT(
            api->name, "cuBLASLt %zu.%zu.%zu", version / 10000,
            version / 100 % 100, version % 100);
    return ZD_OK;
}

enum zd_status cublaslt_open(const struct cublaslt **api_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct cublaslt api;
    static bool is_open;
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&lock);
    if (!is_open)
        status = open_now(&api);
    is_open = is_open || status == ZD_OK;
    pthread_mutex_unlock(&lock);
    *api_out = status == ZD_OK ? &api : NULL;
    return status;
}

enum zd_status cublaslt_check(
        const struct cublaslt *api, cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return ZD_OK;
    bool is_memory = status == CUBLAS_STATUS_ALLOC_FAILED;
    enum zd_status failed = is_memory ? ZD_ERR_MEMORY : ZD_ERR_DEVICE;
    ZD_FAIL(failed, "E1222", "%s: %.*s: %s: %s", api->name,
            (int)strcspn(call, "("), call, api->status_name(status),
            api->status_string(status));
    if (is_memory)
        zd_fail_help("end other processes on the GPU; `nvidia-smi` lists them");
    else
        device_cuda_help();
    return failed;
}
