/* How the library and the back end stand, for all other files. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "comm/nccl/private.h"

#include <time.h>

ncclDataType_t nccl_type_of(enum dtype type)
{
    return type == DTYPE_FP32   ? ncclFloat32
           : type == DTYPE_BF16 ? ncclBfloat16
                                : ncclFloat16;
}

enum zd_status nccl_check_alive(struct nccl *nccl)
{
    if (!atomic_load(&nccl->has_failed))
        return ZD_OK;
    ZD_TRY(device_check()); /* this rank's GPU may be the cause */
    return ZD_ERR_PEER;
}

enum zd_status nccl_settle(struct nccl *nccl, ncclComm_t comm, double seconds)
{
    double begun = clock_seconds();
    for (int polls = 0;; polls++) {
        ncclResult_t state = ncclSuccess;
        pthread_mutex_lock(&nccl->calls);
        nccl->functions->CommGetAsyncError(comm, &state);
        pthread_mutex_unlock(&nccl->calls);
        if (state != ncclInProgress)
            return nccl_check(nccl->functions, state, "NCCL", comm);
        ZD_TRY(nccl_check_alive(nccl));
        double waited = clock_seconds() - begun;
        if (seconds > 0 && waited > seconds)
            return ZD_FAIL(
                    ZD_ERR_PEER, "E1234",
                    "NCCL is not ready after %.0f s (comm.timeout): a rank "
                    "does not come, or cannot be reached",
                    waited);
        if (polls > 64)
            nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
    }
}
