/* test_ranks.c - what rank 0's observer is told of all ranks: before the first
 * step and after the last, and that it is no part of what a step sends. */
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <string.h>
#include <unistd.h>

enum { WORLD_MOST = 4, STEPS = 5 };

struct heard {
    struct train_rank_report first[WORLD_MOST], last[WORLD_MOST];
    int count, times;
};

static void on_ranks(
        void *ctx, const struct train_rank_report *ranks, int count)
{
    struct heard *heard = ctx;
    size_t bytes = (size_t)count * sizeof *ranks;
    memcpy(heard->times++ ? heard->last : heard->first, ranks, bytes);
    heard->count = count;
}

static double sum(const double *values, int count)
{
    double total = 0;
    for (int i = 0; i < count; i++)
        total += values[i];
    return total;
}

static bool is_well(const struct train_rank_report *rank, int number)
{
    uint64_t kinds = 0;
    for (int kind = 0; kind < SPAN_KINDS; kind++)
        kinds += rank->kinds[ARENA_DEVICE][kind];
    return rank->rank == number && rank->local_rank == number &&
           rank->pid == getpid() && rank->threads == 1 && rank->host[0] &&
           strcmp(rank->device, "cpu") == 0 && rank->cpus[0] >= '0' &&
           rank->cpus[0] <= '9' && rank->planned[ARENA_DEVICE] > 0 &&
           rank->taken[ARENA_DEVICE] == rank->planned[ARENA_DEVICE] &&
           kinds > 0 && kinds <= rank->planned[ARENA_DEVICE] &&
           rank->limit[ARENA_DEVICE] >= rank->planned[ARENA_DEVICE] &&
           rank->resident > 1000000 && rank->resident_peak >= rank->resident &&
           rank->heartbeat > 1.7e9;
}

static void ranks_are_told(int world, const char *offload)
{
    struct heard heard = {0};
    struct train_observer observer = {.ctx = &heard, .ranks = on_ranks};
    const char *dir = job_threads_dir();
    bool ran = job_runs_observed(
            "tests/fixtures/deep.toml", dir, world, &observer,
            "zero.stage=3 checkpoint.export=none %s", offload);
    bool well = ran && heard.times >= 2 && heard.count == world;
    bool moved = well;
    for (int r = 0; well && r < world; r++) {
        const struct train_rank_report *first = &heard.first[r],
                                       *last = &heard.last[r];
        well = is_well(first, r) && is_well(last, r) && first->step == 0 &&
               last->step == STEPS && first->step_seconds == 0 &&
               sum(first->phase_seconds, PHASE_CHECKPOINT) == 0;
        moved = moved && last->step_seconds > 0 &&
                last->phase_seconds[PHASE_FORWARD] > 0 &&
                last->phase_seconds[PHASE_BACKWARD] > 0 &&
                last->phase_seconds[PHASE_CHECKPOINT] > 0 &&
                last->phase_seconds[PHASE_EVAL] > 0 &&
                (world == 1) == (last->wire.bytes[COMM_ALL_GATHER] == 0) &&
                (world == 1) == (last->wire.bytes[COMM_REDUCE_SCATTER] == 0) &&
                (offload[0] != 0) == (last->down_bytes > 0) &&
                (offload[0] != 0) == (last->up_bytes > 0);
    }
    tap_ok(well, "world %d %s: %d reports tell who the ranks are", world,
           offload, heard.times);
    tap_ok(moved, "world %d %s: and what they did", world, offload);
    json_auto_t *plan = ran ? plan_check_open(dir) : NULL;
    tap_ok(plan && plan_check_sent(plan, dir, STEPS),
           "world %d %s: a step sends what is planned all the same", world,
           offload);
}

int main(void)
{
    for (int world = 1; world <= 3; world++)
        ranks_are_told(world, "");
    ranks_are_told(2, "offload.optimizer=cpu");
    return tap_done();
}
