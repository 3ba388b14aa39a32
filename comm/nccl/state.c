/* The state of the library and the back end. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "comm/nccl/private.h"

#include <sched.h>
#include <time.h>

ncclDataType_t nccl_type_of(enum dtype type)
{
    return type == DTYPE_FP32   ? ncclFloat32
           : type == DTYPE_BF16 ? ncclBfloat16
                                : ncclFloat16;
}

enum zd_status nccl_check_alive(struct nccl *nccl)
{
    if (!atomic_load(&nccl->has_failed) && !atomic_load(&nccl->is_ended))
        return ZD_OK;
    ZD_TRY(device_check()); /* this rank's GPU may be the cause */
    return ZD_ERR_PEER;
}

bool nccl_calls_begin(struct nccl *nccl)
{
    pthread_mutex_lock(&nccl->calls);
    if (!atomic_load(&nccl->is_ended))
        return true;
    pthread_mutex_unlock(&nccl->calls);
    return false;
}

void nccl_calls_end(struct nccl *nccl)
{
    pthread_mutex_unlock(&nccl->calls);
}

/* *done_out: no longer in progress. */
static enum zd_status poll(struct nccl *nccl, ncclComm_t comm, bool *done_out)
{
    ncclResult_t state = ncclSuccess;
    enum zd_status status = ZD_OK;
    *done_out = false;
    if (!nccl_calls_begin(nccl))
        return nccl_check_alive(nccl);
    nccl->functions->CommGetAsyncError(comm, &state);
    *done_out = state != ncclInProgress;
    if (*done_out)
        status = nccl_check(nccl->functions, state, "NCCL", comm);
    nccl_calls_end(nccl);
    return status;
}

/* A nonblocking communicator hands the work to a library thread, which takes
 * tens of microseconds, as does the shortest sleep. (Blocking ones would avoid
 * that, but a hanging call could not be aborted.) */
static void rest(double waited)
{
    const double at_once = 200e-6;
    if (waited < at_once)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

enum zd_status nccl_settle(struct nccl *nccl, ncclComm_t comm, double seconds)
{
    double begun = clock_seconds();
    for (;;) {
        bool is_done;
        ZD_TRY(poll(nccl, comm, &is_done));
        if (is_done)
            return ZD_OK;
        ZD_TRY(nccl_check_alive(nccl));
        double waited = clock_seconds() - begun;
        if (seconds > 0 && waited > seconds)
            return ZD_FAIL(
                    ZD_ERR_PEER, "E1234",
                    "NCCL is not ready after %.0f s (comm.timeout): a rank "
                    "did not start or cannot be reached",
                    waited);
        rest(waited);
    }
}
