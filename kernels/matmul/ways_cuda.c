/* ways_cuda.c - chooses the faster of two ways for operations other than
 * matmuls. */
#include "kernels/matmul/matmul_plan_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"

/* Leaves tuned->parts UNDECIDED if a way is refused. */
static enum zd_status time_ways(
        const struct two_ways *ways, struct stream *stream, struct tuned *tuned)
{
    double took[2];
    int fastest;
    struct timed_ways timed = {ways->run, ways->work, stream, 2};
    ZD_TRY(timing_measure(&timed, took, &fastest));
    if (took[0] < 0.0 || took[1] < 0.0)
        return ZD_OK;
    tuned->parts = fastest == 1 ? TUNED_APART : TUNED_FUSED;
    tuned->microseconds = (float)took[fastest];
    zd_log_debug(
            "two ways, kind %d: %.1f us and %.1f us", ways->key.epilogue,
            took[0], took[1]);
    return ZD_OK;
}

/* The entry of the run or the file; NULL: none. */
static const struct tuned *known_way(
        const struct plan_table *table, const struct two_ways *ways)
{
    uint32_t kib = plan_workspace_kib(table);
    const struct tuned *tuned = tuning_find(table->run, &ways->key, kib);
    if (tuned)
        return tuned;
    tuned = tuning_find(table->tuning, &ways->key, kib);
    if (tuned)
        tuning_add(table->run, tuned);
    return tuned;
}

/* Call with the file's lock held. */
static enum zd_status settle_way(
        struct plan_table *table, const struct two_ways *ways,
        struct stream *stream)
{
    struct tuned tuned = {
            .key = ways->key, .workspace_kib = plan_workspace_kib(table)};
    if (known_way(table, ways))
        return ZD_OK;
    ZD_TRY(time_ways(ways, stream, &tuned));
    bool is_timed = tuned.parts != TUNED_UNDECIDED;
    if (!is_timed)
        tuned.parts = TUNED_FUSED; /* only for this run: way 0 reports why it
                                      fails */
    table->counters.timed += is_timed;
    tuning_add(is_timed ? table->tuning : table->run, &tuned);
    return ZD_OK;
}

static enum zd_status choose_way(
        struct plan_table *table, const struct two_ways *ways,
        struct stream *stream, int *way_out)
{
    ZD_TRY(plan_table_ready(table));
    if (!known_way(table, ways)) {
        /* Wait before taking the lock: queued work may wait for a collective,
         * and so for a rank that waits for the lock. */
        ZD_CUDA(cudaStreamSynchronize(device_cuda_stream(stream)));
        tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
        enum zd_status status = settle_way(table, ways, stream);
        tuning_unlock(table->tuning);
        ZD_TRY(status);
    }
    const struct tuned *known = known_way(table, ways);
    *way_out = known && known->parts == TUNED_APART;
    return ZD_OK;
}

enum zd_status matmul_choose_way(
        struct stream *stream, const struct two_ways *ways, int *way_out)
{
    struct plan_table *table = plan_table_of_device();
    *way_out = 0;
    if (plan_timing() == MATMUL_HEURISTIC)
        return ZD_OK;
    pthread_mutex_lock(&table->lock);
    enum zd_status status = choose_way(table, ways, stream, way_out);
    pthread_mutex_unlock(&table->lock);
    return status;
}
