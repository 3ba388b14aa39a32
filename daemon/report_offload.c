#include "daemon/report_offload.h"

#include "base/text_buffer.h"
#include "daemon/report.h"

static void add_copy(
        struct text_buffer *line, const char *name, uint64_t bytes,
        double seconds, double steps)
{
    char size[16];
    report_short((double)bytes / steps, size, sizeof size);
    text_buffer_add(
            line, "%s%s %sB in %.1f ms", line->used ? "  " : "", name, size,
            1e3 * seconds / steps);
}

void report_offload_line(
        const struct train_offload_report *report, int64_t steps, char *out,
        size_t out_bytes)
{
    const struct offload_report *engine = &report->engine;
    const struct model_offload_report *acts = &report->activations;
    struct text_buffer line = {.out = out, .bytes = out_bytes};
    double n = steps > 0 ? (double)steps : 1;
    *out = '\0';
    if (engine->down_bytes || engine->up_bytes) {
        add_copy(&line, "down", engine->down_bytes, engine->down_seconds, n);
        text_buffer_add(
                &line, "  host step %.1f ms", 1e3 * engine->host_seconds / n);
        add_copy(&line, "up", engine->up_bytes, engine->up_seconds, n);
    }
    if (engine->disk_read_bytes || engine->disk_written_bytes)
        add_copy(
                &line, "disk",
                engine->disk_read_bytes + engine->disk_written_bytes,
                engine->disk_seconds, n);
    if (acts->down_bytes || acts->up_bytes) {
        char size[16];
        report_short(
                (double)(acts->down_bytes + acts->up_bytes) / n, size,
                sizeof size);
        text_buffer_add(
                &line, "%sactivations %sB", line.used ? "  " : "", size);
    }
    text_buffer_add(
            &line, "  waited %.1f ms", 1e3 * train_offload_waited(report) / n);
    text_buffer_add(
            &line, " (down %.1f, host step %.1f, up %.1f",
            1e3 * engine->wait_down_seconds / n,
            1e3 * engine->wait_host_seconds / n,
            1e3 * engine->wait_up_seconds / n);
    if (acts->down_bytes || acts->up_bytes)
        text_buffer_add(
                &line, ", activations %.1f", 1e3 * acts->wait_seconds / n);
    text_buffer_add(&line, ")");
}

const char *report_offload_advice(
        const struct train_offload_report *report, int64_t steps,
        double step_seconds)
{
    const struct offload_report *engine = &report->engine;
    double waits[] = {
            engine->wait_down_seconds, engine->wait_host_seconds,
            engine->wait_up_seconds, report->activations.wait_seconds};
    static const char *const advice[] = {
            "most of it for gradients on their way down",
            "most of it for the update on the host: more offload.threads, "
            "8-bit states or more tokens a step would hide it",
            "most of it for parameters on their way up",
            "most of it for activations: a larger "
            "train.gradient_checkpointing segment moves fewer"};
    size_t longest = 0;
    double n = steps > 0 ? (double)steps : 1;
    if (train_offload_waited(report) / n < 0.1 * step_seconds)
        return NULL;
    for (size_t i = 1; i < sizeof waits / sizeof waits[0]; i++)
        if (waits[i] > waits[longest])
            longest = i;
    bool is_behind = longest == 1 || longest == 2; /* the disk, maybe */
    if (is_behind && engine->disk_seconds > 0.5 * engine->worker_seconds)
        return "most of it for the disk: a faster one, or offload.optimizer = "
               "\"cpu\" if the host has room";
    return advice[longest];
}
