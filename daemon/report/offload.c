#include "daemon/report/report.h"

#include "base/text_buffer.h"

/* "12.3 ms", "45 us". */
static void add_time(struct text_buffer *line, double seconds)
{
    if (seconds >= 0.5e-4 || seconds < 0.5e-6)
        text_buffer_add(line, "%.1f ms", 1e3 * seconds);
    else
        text_buffer_add(line, "%.0f us", 1e6 * seconds);
}

static void add_copy(
        struct text_buffer *line, const char *name, uint64_t bytes,
        double seconds, double steps)
{
    text_buffer_add(
            line, "%s%s %sB in ", line->used ? "  " : "", name,
            REPORT_SHORT((double)bytes / steps));
    add_time(line, seconds / steps);
}

static bool has_moved(const struct model_offload_report *activations)
{
    return activations->down_bytes || activations->up_bytes;
}

static void add_waits(
        struct text_buffer *line, const struct train_offload_report *report,
        double n)
{
    const struct offload_report *engine = &report->engine;
    bool has_disk = engine->disk_read_bytes || engine->disk_written_bytes;
    text_buffer_add(
            line, "  waited %.1f ms (down %.1f, host step %.1f",
            1e3 * train_offload_waited(report) / n,
            1e3 * engine->wait_down_seconds / n,
            1e3 * engine->wait_host_seconds / n);
    if (has_disk)
        text_buffer_add(
                line, ", disk %.1f", 1e3 * engine->wait_disk_seconds / n);
    text_buffer_add(line, ", up %.1f", 1e3 * engine->wait_up_seconds / n);
    if (has_moved(&report->activations))
        text_buffer_add(
                line, ", activations %.1f",
                1e3 * report->activations.wait_seconds / n);
    text_buffer_add(line, ")");
}

bool report_offload_line(
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
        text_buffer_add(&line, "  host step ");
        add_time(&line, engine->host_seconds / n);
        add_copy(&line, "up", engine->up_bytes, engine->up_seconds, n);
    }
    if (engine->disk_read_bytes || engine->disk_written_bytes) {
        text_buffer_add(
                &line, "%sdisk %sB read, %sB written", line.used ? "  " : "",
                REPORT_SHORT((double)engine->disk_read_bytes / n),
                REPORT_SHORT((double)engine->disk_written_bytes / n));
    }
    if (has_moved(acts)) {
        text_buffer_add(
                &line, "%sactivations %sB", line.used ? "  " : "",
                REPORT_SHORT((double)(acts->down_bytes + acts->up_bytes) / n));
    }
    if (!line.used)
        return false;
    add_waits(&line, report, n);
    return true;
}

const char *report_offload_advice(
        const struct train_offload_report *report, int64_t steps,
        double step_seconds)
{
    const struct offload_report *engine = &report->engine;
    double waits[] = {
            engine->wait_down_seconds, engine->wait_host_seconds,
            engine->wait_disk_seconds, engine->wait_up_seconds,
            report->activations.wait_seconds};
    static const char *const advice[] = {
            "mostly for gradients to reach the host",
            "mostly for the update on the host: more offload.threads, "
            "8-bit states or more tokens a step would hide it",
            "mostly for the disk: a faster one, or offload.optimizer = "
            "\"cpu\" if the host has room",
            "mostly for parameters to reach the device",
            "mostly for activations: a larger "
            "train.gradient_checkpointing segment moves fewer"};
    size_t longest = 0;
    double n = steps > 0 ? (double)steps : 1;
    if (train_offload_waited(report) / n < 0.1 * step_seconds)
        return NULL;
    for (size_t i = 1; i < sizeof waits / sizeof waits[0]; i++)
        if (waits[i] > waits[longest])
            longest = i;
    return advice[longest];
}
