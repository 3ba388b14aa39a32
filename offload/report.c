#include "offload/engine.h"

struct offload_report offload_report_take(struct offload *offload)
{
    struct stream_counters down = {0}, up = {0};
    if (offload->place.down)
        down = stream_counters(offload->place.down);
    if (offload->place.up)
        up = stream_counters(offload->place.up);
    pthread_mutex_lock(&offload->lock);
    struct offload_report report = offload->report;
    offload->report = (struct offload_report){0};
    pthread_mutex_unlock(&offload->lock);
    if (offload->store->ops->report)
        offload->store->ops->report(offload->store, &report);
    report.down_seconds = down.seconds - offload->down_before.seconds;
    report.up_seconds = up.seconds - offload->up_before.seconds;
    offload->down_before = down;
    offload->up_before = up;
    return report;
}
