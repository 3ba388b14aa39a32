/* waits.c - what the trainer waits for.
 *
 * Clocks run under the engine's lock. `working` says how the time passes for
 * who waits for workers: the share of the busy ones that wait for the disk goes
 * to the disk, the rest to what the first job is for. `holding` of a stream
 * does so too, but stands while the stream can go on: who waits for an event of
 * it waits for the workers only as long as the stream does. A wait is the
 * difference of two readings; what no clock has counted is the copy. */
#include "offload/engine.h"

#include "base/clock.h"

/* Under the lock: what the first job makes others wait for. */
static enum wait_for first_is_for(const struct offload *offload)
{
    if (offload->job_begin == offload->job_end)
        return WAIT_UP;
    uint64_t at = offload->job_begin % (uint64_t)offload->job_capacity;
    return offload->jobs[at].is_for;
}

void waits_count(struct offload *offload)
{
    double now = clock_seconds();
    double passed = now - offload->waits_at;
    int busy = offload->busy, on_disk = offload->on_disk;
    double share = busy ? (double)on_disk / busy : 0;
    enum wait_for rest = first_is_for(offload);
    offload->waits_at = now;
    offload->working[WAIT_DISK] += share * passed;
    offload->working[rest] += (1 - share) * passed;
    for (int i = 0; i < WAITS; i++)
        if (offload->is_held[i]) {
            offload->holding[i][WAIT_DISK] += share * passed;
            offload->holding[i][rest] += (1 - share) * passed;
        }
}

void waits_hold(struct offload *offload, enum wait_for stream, bool is_held)
{
    pthread_mutex_lock(&offload->lock);
    waits_count(offload);
    offload->is_held[stream] = is_held;
    pthread_mutex_unlock(&offload->lock);
}

struct wait wait_begin(struct offload *offload, enum wait_for whom)
{
    struct wait wait = {
            .clocks = whom == WAIT_HOST ? offload->working
                                        : offload->holding[whom]};
    pthread_mutex_lock(&offload->lock);
    waits_count(offload);
    wait.begin = offload->waits_at;
    for (int i = 0; i < WAITS; i++)
        wait.before[i] = wait.clocks[i];
    pthread_mutex_unlock(&offload->lock);
    return wait;
}

void wait_end(
        struct offload *offload, const struct wait *wait, enum wait_for rest)
{
    double passed[WAITS];
    pthread_mutex_lock(&offload->lock);
    waits_count(offload);
    double left = offload->waits_at - wait->begin;
    for (int i = 0; i < WAITS; i++) {
        passed[i] = wait->clocks[i] - wait->before[i];
        left -= passed[i];
    }
    passed[rest] += left > 0 ? left : 0; /* below 0 by rounding only */
    offload->report.wait_down_seconds += passed[WAIT_DOWN];
    offload->report.wait_host_seconds += passed[WAIT_HOST];
    offload->report.wait_disk_seconds += passed[WAIT_DISK];
    offload->report.wait_up_seconds += passed[WAIT_UP];
    pthread_mutex_unlock(&offload->lock);
}
