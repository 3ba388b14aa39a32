/* timing_cuda.c - times alternative ways to compute the same result. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"

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

/* Microseconds; < 0: refused. */
static enum zd_status run_once(
        const struct timed_ways *ways, int way, const struct events *events,
        double *took_out)
{
    float milliseconds;
    bool refused = false;
    cudaStream_t queue = device_cuda_stream(ways->stream);
    *took_out = -1.0;
    ZD_CUDA(cudaEventRecord(events->start, queue));
    ZD_TRY(ways->run(ways->work, way, &refused));
    if (refused)
        return ZD_OK;
    ZD_CUDA(cudaEventRecord(events->stop, queue));
    ZD_CUDA(cudaEventSynchronize(events->stop));
    ZD_CUDA(cudaEventElapsedTime(&milliseconds, events->start, events->stop));
    *took_out = 1e3 * (double)milliseconds;
    return ZD_OK;
}

static enum zd_status measure(
        const struct timed_ways *ways, int way, const struct events *events,
        double best, double *shortest_out)
{
    enum { RUNS = 5 };
    double took;
    *shortest_out = -1.0;
    ZD_TRY(run_once(ways, way, events, &took));
    for (int run = 0; run < RUNS && took >= 0.0; run++) {
        ZD_TRY(run_once(ways, way, events, &took));
        if (took >= 0.0 && (*shortest_out < 0.0 || took < *shortest_out))
            *shortest_out = took;
        if (best >= 0.0 && *shortest_out > 1.5 * best)
            break;
    }
    return ZD_OK;
}

enum zd_status timing_measure(
        const struct timed_ways *ways, double *took, int *fastest_out)
{
    struct events events;
    enum zd_status status = ZD_OK;
    int best = -1;
    ZD_TRY(events_create(&events));
    for (int way = 0; status == ZD_OK && way < ways->count; way++) {
        status = measure(
                ways, way, &events, best < 0 ? -1.0 : took[best], &took[way]);
        if (took[way] >= 0.0 && (best < 0 || took[way] < took[best]))
            best = way;
    }
    cudaEventDestroy(events.start);
    cudaEventDestroy(events.stop);
    *fastest_out = best;
    return status;
}
