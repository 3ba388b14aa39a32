#include "train/trainer/stragglers.h"

#include "base/log.h"
#include "base/must.h"
#include "comm/topology.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

static const double SLOW = 1.5, LEAST_SECONDS = 1e-3 * STRAGGLER_STEPS;

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double stragglers_median(const double *busy, int size, double *sorted)
{
    memcpy(sorted, busy, (size_t)size * sizeof *sorted);
    qsort(sorted, (size_t)size, sizeof *sorted, compare);
    return sorted[(size - 1) / 2];
}

bool stragglers_is_one(double busy, double median)
{
    return busy > SLOW * median && busy - median > LEAST_SECONDS;
}

static void name(struct trainer *trainer, int rank, double ratio)
{
    const char *host = comm_topology(trainer->comm)->ranks[rank].host;
    int64_t step = trainer->state.step;
    zd_log_warning(
            "rank %d (%s) is slow: over the last %d steps it was busy %.1f "
            "times as long as the median of all ranks, which wait for it",
            rank, host, STRAGGLER_STEPS, ratio);
    events_tell(
            trainer->events, "straggler", step,
            json_pack(
                    "{s:i, s:s, s:f}", "rank", rank, "host", host, "ratio",
                    ratio));
}

/* all: (2, size), the ranks' busy seconds, then room to sort them */
static void judge(struct trainer *trainer, double *all)
{
    struct stragglers *stragglers = &trainer->stragglers;
    int size = comm_size(trainer->comm);
    double median = stragglers_median(all, size, all + size);
    if (median <= 0)
        return;
    stragglers->slowness = all[comm_rank(trainer->comm)] / median;
    for (int r = 0; trainer_is_first(trainer) && r < size; r++)
        if (!stragglers->is_named[r] && stragglers_is_one(all[r], median)) {
            stragglers->is_named[r] = true;
            name(trainer, r, all[r] / median);
        }
}

static enum zd_status gather(struct trainer *trainer)
{
    struct stragglers *stragglers = &trainer->stragglers;
    size_t size = (size_t)comm_size(trainer->comm);
    double *all = zd_array(2 * size, sizeof *all);
    if (!stragglers->is_named)
        stragglers->is_named = zd_array(size, sizeof *stragglers->is_named);
    enum zd_status status = comm_gather_all(
            trainer->comm, &stragglers->busy, sizeof stragglers->busy, all);
    if (status == ZD_OK)
        judge(trainer, all);
    free(all);
    return status;
}

void stragglers_begin(struct trainer *trainer)
{
    trainer->stragglers.waited_before = comm_waited(trainer->comm);
}

enum zd_status stragglers_step(struct trainer *trainer, double seconds)
{
    struct stragglers *stragglers = &trainer->stragglers;
    double waited = comm_waited(trainer->comm) - stragglers->waited_before -
                    trainer->aside.waited;
    if (comm_size(trainer->comm) == 1)
        return ZD_OK;
    if (!stragglers->has_begun) { /* the first step opens libraries */
        stragglers->has_begun = true;
        return ZD_OK;
    }
    stragglers->busy += seconds > waited ? seconds - waited : 0;
    if (++stragglers->steps < STRAGGLER_STEPS)
        return ZD_OK;
    ZD_TRY(gather(trainer));
    stragglers->busy = 0;
    stragglers->steps = 0;
    return ZD_OK;
}

void stragglers_fini(struct stragglers *stragglers)
{
    free(stragglers->is_named);
    stragglers->is_named = NULL;
}
