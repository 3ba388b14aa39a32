#include "kernels/matmul/timing_cuda.h"

#include "base/device/device_cuda.h"

#include <cuda_runtime_api.h>

struct events {
    cudaEvent_t start, stop;
};

static enum zd_status events_create(struct events *events)
{
    ZD_CUDA(cudaEventCreate(&events->start));
    cudaError_t error = cudaEventCreate(&events->stop);
    if (error != cudaSuccess)
        cudaEventDestroy(events->start);
    return device_cuda_check(error, "cudaEventCreate");
}

/* Microseconds; < 0: it is refused. */
static enum zd_status run_once(
        const struct timed_work *timed, const struct events *events,
        double *took_out)
{
    float milliseconds;
    bool refused = false;
    cudaStream_t queue = device_cuda_stream(timed->stream);
    *took_out = -1.0;
    ZD_CUDA(cudaEventRecord(events->start, queue));
    ZD_TRY(timed->run(timed->work, &refused));
    if (refused)
        return ZD_OK;
    ZD_CUDA(cudaEventRecord(events->stop, queue));
    ZD_CUDA(cudaEventSynchronize(events->stop));
    ZD_CUDA(cudaEventElapsedTime(&milliseconds, events->start, events->stop));
    *took_out = 1e3 * (double)milliseconds;
    return ZD_OK;
}

static enum zd_status measure(
        const struct timed_work *timed, const struct events *events,
        double best, double *shortest_out)
{
    enum { RUNS = 5 };
    double took;
    *shortest_out = -1.0;
    ZD_TRY(run_once(timed, events, &took));
    for (int run = 0; run < RUNS && took >= 0.0; run++) {
        ZD_TRY(run_once(timed, events, &took));
        if (took >= 0.0 && (*shortest_out < 0.0 || took < *shortest_out))
            *shortest_out = took;
        if (best >= 0.0 && *shortest_out > 1.5 * best)
            break;
    }
    return ZD_OK;
}

enum zd_status timing_measure(
        const struct timed_work *timed, double best, double *shortest_out)
{
    struct events events;
    ZD_TRY(events_create(&events));
    enum zd_status status = measure(timed, &events, best, shortest_out);
    cudaEventDestroy(events.start);
    cudaEventDestroy(events.stop);
    return status;
}
