#include "offload/waits.h"

#include "base/clock.h"

#include <string.h>

void waits_init(struct waits *waits)
{
    *waits = (struct waits){.counted_to = clock_seconds(), .first = WAIT_UP};
    pthread_mutex_init(&waits->lock, NULL);
}

void waits_fini(struct waits *waits)
{
    pthread_mutex_destroy(&waits->lock);
}

/* Takes the lock, and counts until now: before anything changes that the clocks
 * depend on. */
static void enter(struct waits *waits)
{
    pthread_mutex_lock(&waits->lock);
    double now = clock_seconds();
    double passed = now - waits->counted_to;
    double share = waits->busy ? (double)waits->on_disk / waits->busy : 0;
    waits->counted_to = now;
    waits->working[WAIT_DISK] += share * passed;
    waits->working[waits->first] += (1 - share) * passed;
    for (int i = 0; i < WAITS; i++)
        if (waits->is_held[i]) {
            waits->holding[i][WAIT_DISK] += share * passed;
            waits->holding[i][waits->first] += (1 - share) * passed;
        }
}

static void leave(struct waits *waits)
{
    pthread_mutex_unlock(&waits->lock);
}

void waits_work(struct waits *waits, int busy, int on_disk)
{
    enter(waits);
    waits->busy += busy;
    waits->on_disk += on_disk;
    leave(waits);
}

void waits_first(struct waits *waits, uint64_t jobs, enum wait_for first)
{
    enter(waits);
    if (jobs > waits->jobs) {
        waits->jobs = jobs;
        waits->first = first;
    }
    leave(waits);
}

void waits_hold(struct waits *waits, enum wait_for stream, bool is_held)
{
    enter(waits);
    waits->is_held[stream] = is_held;
    leave(waits);
}

struct wait wait_begin(struct waits *waits, enum wait_for whom)
{
    struct wait wait = {
            .clocks =
                    whom == WAIT_HOST ? waits->working : waits->holding[whom]};
    enter(waits);
    wait.begin = waits->counted_to;
    memcpy(wait.before, wait.clocks, sizeof wait.before);
    leave(waits);
    return wait;
}

void wait_end(struct waits *waits, const struct wait *wait, enum wait_for rest)
{
    enter(waits);
    double left = waits->counted_to - wait->begin;
    for (int i = 0; i < WAITS; i++) {
        double passed = wait->clocks[i] - wait->before[i];
        waits->waited[i] += passed;
        left -= passed;
    }
    waits->waited[rest] += left > 0 ? left : 0; /* below 0 by rounding only */
    leave(waits);
}

void waits_take(struct waits *waits, struct offload_report *report)
{
    enter(waits);
    report->wait_down_seconds = waits->waited[WAIT_DOWN];
    report->wait_host_seconds = waits->waited[WAIT_HOST];
    report->wait_disk_seconds = waits->waited[WAIT_DISK];
    report->wait_up_seconds = waits->waited[WAIT_UP];
    memset(waits->waited, 0, sizeof waits->waited);
    leave(waits);
}
