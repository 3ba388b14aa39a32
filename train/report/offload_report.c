#include "train/report/observer.h"

void train_offload_add(
        struct train_offload_report *total,
        const struct train_offload_report *of)
{
    struct offload_report *sum = &total->engine;
    const struct offload_report *one = &of->engine;
    total->active |= of->active;
    sum->down_bytes += one->down_bytes;
    sum->up_bytes += one->up_bytes;
    sum->disk_read_bytes += one->disk_read_bytes;
    sum->disk_written_bytes += one->disk_written_bytes;
    sum->down_seconds += one->down_seconds;
    sum->up_seconds += one->up_seconds;
    sum->host_seconds += one->host_seconds;
    sum->worker_seconds += one->worker_seconds;
    sum->disk_seconds += one->disk_seconds;
    sum->wait_down_seconds += one->wait_down_seconds;
    sum->wait_host_seconds += one->wait_host_seconds;
    sum->wait_disk_seconds += one->wait_disk_seconds;
    sum->wait_up_seconds += one->wait_up_seconds;
    sum->undone |= one->undone;
    total->undone_steps += of->undone_steps;
    total->activations.down_bytes += of->activations.down_bytes;
    total->activations.up_bytes += of->activations.up_bytes;
    total->activations.wait_seconds += of->activations.wait_seconds;
}

double train_offload_waited(const struct train_offload_report *report)
{
    const struct offload_report *engine = &report->engine;
    return engine->wait_down_seconds + engine->wait_host_seconds +
           engine->wait_disk_seconds + engine->wait_up_seconds +
           report->activations.wait_seconds;
}
