/* ways_cuda.c - two ways to compute the same, chosen by timing (two_ways). */
#include "kernels/matmul/matmul_plan_cuda.h"
#include "kernels/matmul/timing_cuda.h"

#include "base/device/device_cuda.h"
#include "base/log.h"

struct way_trial {
    const struct two_ways *ways;
    int way;
};

static enum zd_status run_way(const void *work, bool *refused_out)
{
    const struct way_trial *trial = work;
    return trial->ways->run(trial->ways->work, trial->way, refused_out);
}

/* UNDECIDED where one is refused. */
static enum zd_status time_ways(
        const struct two_ways *ways, struct stream *stream, struct tuned *tuned)
{
    double took[2] = {-1.0, -1.0};
    for (int way = 0; way < 2; way++) {
        struct way_trial trial = {ways, way};
        struct timed_work timed = {run_way, &trial, stream};
        ZD_TRY(timing_measure(&timed, took[0], &took[way]));
        if (took[way] < 0.0)
            return ZD_OK;
    }
    tuned->parts = took[1] < took[0] ? TUNED_APART : TUNED_FUSED;
    tuned->microseconds = (float)took[took[1] < took[0]];
    zd_log_debug(
            "two ways, kind %d: %.1f us and %.1f us", ways->key.epilogue,
            took[0], took[1]);
    return ZD_OK;
}

/* What the run or the file knows; NULL: nothing. */
static const struct tuned *known_way(
        const struct plan_table *table, const struct two_ways *ways)
{
    uint32_t kib = plan_workspace_kib(table);
    const struct tuned *tuned =
            table->run ? tuning_find(table->run, &ways->key, kib) : NULL;
    if (tuned)
        return tuned;
    tuned = tuning_find(table->tuning, &ways->key, kib);
    if (tuned && table->run)
        tuning_add(table->run, tuned);
    return tuned;
}

/* The file's lock is held. */
static enum zd_status settle_way(
        struct plan_table *table, const struct two_ways *ways,
        struct stream *stream, const struct tuned **known_out)
{
    struct tuned tuned = {
            .key = ways->key, .workspace_kib = plan_workspace_kib(table)};
    *known_out = known_way(table, ways);
    if (*known_out)
        return ZD_OK;
    ZD_TRY(time_ways(ways, stream, &tuned));
    bool is_timed = tuned.parts != TUNED_UNDECIDED;
    if (!is_timed)
        tuned.parts = TUNED_FUSED; /* for this run: way 0 says what it lacks */
    table->counters.timed += is_timed;
    if (is_timed || table->run)
        tuning_add(is_timed ? table->tuning : table->run, &tuned);
    *known_out = known_way(table, ways);
    return ZD_OK;
}

static enum zd_status choose_way(
        struct plan_table *table, const struct two_ways *ways,
        struct stream *stream, int *way_out)
{
    ZD_TRY(plan_table_ready(table));
    if (!table->tuning)
        return ZD_OK;
    const struct tuned *known = known_way(table, ways);
    if (!known) {
        /* Before the lock: what is queued may wait for a collective, and so for
         * a rank that waits for the lock. */
        ZD_CUDA(cudaStreamSynchronize(device_cuda_stream(stream)));
        tuning_lock(table->tuning, PLAN_LOCK_TIMEOUT_MS);
        enum zd_status status = settle_way(table, ways, stream, &known);
        tuning_unlock(table->tuning);
        ZD_TRY(status);
    }
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
