#include "offload/engine.h"

#include "base/clock.h"

enum zd_status offload_failure(struct offload *offload)
{
    ZD_LOCKED(&offload->lock);
    if (offload->status != ZD_OK)
        zd_error_set(&offload->error);
    return offload->status;
}

void report_add(struct offload *offload, uint64_t down, uint64_t up)
{
    ZD_LOCKED(&offload->lock);
    offload->report.down_bytes += down;
    offload->report.up_bytes += up;
}

struct wait wait_begin(struct offload *offload, enum wait_for what)
{
    ZD_LOCKED(&offload->lock);
    return (struct wait){
            offload, what, clock_seconds(), offload->busy_seconds,
            offload->disk_seconds};
}

void wait_end(const struct wait *wait)
{
    struct offload *offload = wait->offload;
    struct offload_report *report = &offload->report;
    double *const for_what[] = {
            &report->wait_down_seconds, &report->wait_host_seconds,
            &report->wait_up_seconds};
    ZD_LOCKED(&offload->lock);
    double seconds = clock_seconds() - wait->begin;
    double busy = offload->busy_seconds - wait->busy;
    double disk = offload->disk_seconds - wait->disk;
    double on_disk = busy > disk ? seconds * disk / busy : seconds;
    on_disk = on_disk < disk ? on_disk : disk;
    report->wait_disk_seconds += on_disk;
    *for_what[wait->what] += seconds - on_disk;
}

struct offload_facts offload_facts(const struct offload *offload)
{
    struct offload_facts facts = {
            .worker_threads = offload->place.worker_threads,
            .is_bound = offload->place.first_cpu >= 0};
    if (offload->file)
        store_file_describe(offload->file, &facts);
    return facts;
}

/* Either may be NULL. */
static double seconds_of(struct stream *a, struct stream *b)
{
    return stream_counters(a).seconds + stream_counters(b).seconds;
}

struct offload_report offload_report_take(struct offload *offload)
{
    double down = seconds_of(offload->place.down, offload->visitors.down);
    double up = seconds_of(offload->place.up, offload->visitors.up);
    pthread_mutex_lock(&offload->lock);
    struct offload_report report = offload->report;
    offload->report = (struct offload_report){0};
    pthread_mutex_unlock(&offload->lock);
    if (offload->file)
        store_file_report(offload->file, &report);
    report.down_seconds = down - offload->down_before;
    report.up_seconds = up - offload->up_before;
    offload->down_before = down;
    offload->up_before = up;
    return report;
}
