#include "daemon/report/report.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "daemon/cli/look.h"
#include "daemon/cli/output.h"
#include "train/checkpoint/checkpoint.h"
#include "zd_config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what offload took --- */

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

enum { BAR_BYTES = 512, BAR_COLUMNS_MAX = 120 };

struct report {
    const struct train_job *job;
    bool has_bar, has_lines;
    bool is_chat;  /* conversations, by the template that generate takes */
    bool is_drawn; /* the bar is on the screen */
    char bar[BAR_BYTES];
    int drawn_columns;
    double drawn_at;     /* seconds */
    double mean_seconds; /* of a step, smoothed */
    int64_t first_step;  /* of this process */
};

/* --- the bar: drawn over itself with a carriage return, no escape codes --- */

void report_bar(
        const struct train_step_report *step, double eta_seconds, int columns,
        char *out, size_t out_bytes)
{
    static const char full[] = "====================";
    char parts[4][64];
    struct text_buffer text = {.out = out, .bytes = out_bytes};
    double share = step->max_steps > 0
                           ? (double)step->step / (double)step->max_steps
                           : 0;
    int cells = columns >= 70 ? 20 : columns >= 50 ? 10 : 0;
    int done = (int)(share * cells), left = cells - done;
    if (cells)
        text_buffer_add(
                &text, "[%.*s%-*s] ", done, full, left, left > 0 ? ">" : "");
    text_buffer_add(
            &text, "%lld/%lld %.0f%%", (long long)step->step,
            (long long)step->max_steps, 100 * share);
    ZD_PRINT(parts[0], "loss %.4f", step->loss);
    ZD_PRINT(parts[1], "eta %s", TEXT_DURATION(eta_seconds));
    ZD_PRINT(parts[2], "%s tok/s", REPORT_SHORT(step->tokens_per_second));
    ZD_PRINT(parts[3], "lr %.2e", step->learning_rate);
    for (int i = 0; i < 4; i++)
        if (text.used + 2 + strlen(parts[i]) <= (size_t)columns)
            text_buffer_add(&text, "  %s", parts[i]);
}

static void bar_hide(void *ctx)
{
    struct report *report = ctx;
    if (report->is_drawn)
        dprintf(STDERR_FILENO, "\r%*s\r", report->drawn_columns, "");
    report->is_drawn = false;
}

static void bar_show(void *ctx)
{
    struct report *report = ctx;
    if (!report->bar[0])
        return;
    dprintf(STDERR_FILENO, "\r%s", report->bar);
    report->drawn_columns = (int)strlen(report->bar);
    report->is_drawn = true;
}

static void bar_update(
        struct report *report, const struct train_step_report *step, double eta)
{
    double now = clock_seconds();
    int columns = output_columns(STDERR_FILENO) - 1;
    if (columns > BAR_COLUMNS_MAX)
        columns = BAR_COLUMNS_MAX;
    if (now - report->drawn_at < 0.1 && step->step < step->max_steps)
        return;
    bar_hide(report);
    report_bar(step, eta, columns, report->bar, sizeof report->bar);
    bar_show(report);
    report->drawn_at = now;
}

static void bar_remove(struct report *report)
{
    if (!report->has_bar)
        return;
    bar_hide(report);
    report->bar[0] = '\0';
}

static void on_banner(void *ctx, const struct train_banner *banner)
{
    struct report *report = ctx;
    report->first_step = banner->state->step;
    report->is_chat = banner->chat_template &&
                      banner->job->data.chat_template == CHAT_AUTO;
    report_banner(banner);
}

/* --- steps --- */

/* "update 1.2  gathers 0.0 ..", in ms of one of so many steps. */
static void exposed_words(
        const struct train_exposed *exposed, int64_t steps, char out[160])
{
    struct text_buffer line = {.out = out, .bytes = 160};
    double ms = 1e3 / (double)(steps > 0 ? steps : 1);
    text_buffer_add(
            &line, "update %.1f  gathers %.1f  copies %.1f",
            ms * exposed->update, ms * exposed->gathers, ms * exposed->copies);
    if (isfinite(exposed->launches))
        text_buffer_add(&line, "  launches %.1f", ms * exposed->launches);
}

static void tell_breakdown(const struct train_step_report *step)
{
    zd_log_info(
            "     %.1f ms: data %.1f  forward %.1f  backward %.1f  reduce "
            "%.1f  update %.1f  gather %.1f",
            1e3 * step->step_seconds, 1e3 * step->data_seconds,
            1e3 * step->forward_seconds, 1e3 * step->backward_seconds,
            1e3 * step->reduce_seconds, 1e3 * step->update_seconds,
            1e3 * step->gather_seconds);
    char words[320];
    exposed_words(&step->exposed, 1, words);
    zd_log_info("     exposed: %s", words);
    if (step->offload.active &&
        report_offload_line(&step->offload, 1, words, sizeof words))
        zd_log_info("     offload: %s", words);
}

static void on_step(void *ctx, const struct train_step_report *step)
{
    struct report *report = ctx;
    /* the first step of a process warms caches: it counts for little */
    report->mean_seconds =
            step->step <= report->first_step + 2
                    ? step->step_seconds
                    : 0.9 * report->mean_seconds + 0.1 * step->step_seconds;
    double eta = report->mean_seconds * (double)(step->max_steps - step->step);
    if (report->has_lines && train_step_is_logged(step, &report->job->log)) {
        zd_log_info(
                "step %lld/%lld  loss %.4f  grad_norm %.3g  lr %.3e  %s "
                "tok/s  eta %s%s%s",
                (long long)step->step, (long long)step->max_steps, step->loss,
                step->grad_norm, step->learning_rate,
                REPORT_SHORT(step->tokens_per_second), TEXT_DURATION(eta),
                step->skipped ? "  skipped: " : "",
                step->skipped ? step->skipped : "");
        if (report->job->log.step_breakdown)
            tell_breakdown(step);
    }
    if (report->has_bar)
        bar_update(report, step, eta);
}

/* --- the end --- */

static void tell_offload(
        const struct train_end *end, const struct offload_options *options)
{
    char line[320];
    int64_t undone = end->offload.undone_steps, steps = end->offload_steps;
    if (options->clipping == OFFLOAD_CLIP_UNDO &&
        options->optimizer != OFFLOAD_NONE) /* each costs one more update */
        zd_log_info(
                "  undone      %lld of %lld updates%s", (long long)undone,
                (long long)steps,
                undone * 4 > steps
                        ? ": offload.clipping = \"wait\" makes each once"
                        : "");
    steps = steps > 0 ? steps : 1;
    if (!report_offload_line(&end->offload, steps, line, sizeof line))
        return;
    zd_log_info("  offload     a step: %s", line);
    const char *advice = report_offload_advice(
            &end->offload, steps, end->seconds / (double)steps);
    if (advice)
        zd_log_info("              %s", advice);
}

/* The next command, with paths quoted; `adapter` may be NULL. */
static void tell_next(
        const char *before, const char *path, const char *adapter,
        const char *after)
{
    struct text_buffer text = TEXT_BUFFER(4 * PATH_MAX);
    text_buffer_add_word(&text, path);
    if (adapter) {
        text_buffer_add(&text, " --adapter ");
        text_buffer_add_word(&text, adapter);
    }
    zd_log_info("  next        %s %s %s", before, text.out, after);
}

static bool is_stop_after(const char *stopped_by)
{
    return stopped_by && strcmp(stopped_by, "--stop-after") == 0;
}

static void on_end(void *ctx, const struct train_end *end)
{
    static const char generate[] = "zerod generate --model";
    struct report *report = ctx;
    const char *flops = REPORT_SHORT(end->model_flops_per_second);
    const char *prompt =
            report->is_chat ? "--chat --prompt \"...\"" : "--prompt \"...\"";
    bar_remove(report);
    zd_log_info(
            "%s after step %lld of %lld%s, in %s",
            end->stopped_by ? "stopped" : "done", (long long)end->step,
            (long long)end->max_steps,
            is_stop_after(end->stopped_by) ? " (--stop-after)" : "",
            TEXT_DURATION(end->seconds));
    if (isfinite(end->last_loss))
        zd_log_info("  loss        %.4f", end->last_loss);
    if (isfinite(end->best_eval_loss))
        zd_log_info("  best eval   %.4f", end->best_eval_loss);
    size_t digits = strcspn(flops, "kMGTPE"); /* 210 GFLOP/s */
    if (end->tokens_per_second > 0)
        zd_log_info(
                "  speed       %s tokens/s, %.*s %sFLOP/s",
                REPORT_SHORT(end->tokens_per_second), (int)digits, flops,
                flops + digits);
    if (end->skipped_steps)
        zd_log_info(
                "  skipped     %lld step%s", (long long)end->skipped_steps,
                end->skipped_steps == 1 ? "" : "s");
    if (end->offload.active)
        tell_offload(end, &report->job->offload);
    char words[160];
    exposed_words(&end->exposed, end->offload_steps, words);
    if (end->offload.active || strpbrk(words, "123456789"))
        zd_log_info("  exposed     %s ms of a step", words);
    zd_log_info("  metrics     %s/metrics.jsonl", report->job->job.output_dir);
    if (end->checkpoint)
        zd_log_info("  checkpoint  %s", end->checkpoint);
    if (end->export_dir && report->job->checkpoint.export == EXPORT_PEFT) {
        zd_log_info("  adapter     %s", end->export_dir);
        if (report->job->model.path)
            tell_next(
                    generate, report->job->model.path, end->export_dir, prompt);
    } else if (end->export_dir) {
        zd_log_info("  model       %s", end->export_dir);
        tell_next(generate, end->export_dir, NULL, prompt);
    } else if (end->stopped_by && end->checkpoint) {
        zd_log_info(
                "  next        the same command%s goes on from there",
                is_stop_after(end->stopped_by) ? " without --stop-after" : "");
    } else if (end->checkpoint) {
        tell_next("zerod export", end->checkpoint, NULL, "-o DIR");
    }
}

/* --- life --- */

struct report *report_create(const struct train_job *job)
{
    struct report *report = zd_array(1, sizeof *report);
    enum progress_mode mode = job->log.progress;
    bool may_draw = output_is_terminal(STDERR_FILENO) && !job->log.json &&
                    job->log.level <= ZD_LOG_INFO;
    report->job = job;
    report->has_bar =
            may_draw && (mode == PROGRESS_AUTO || mode == PROGRESS_BAR);
    report->has_lines = mode != PROGRESS_NONE;
    if (report->has_bar)
        zd_log_set_bar(bar_hide, bar_show, report);
    zd_log_info(
            "zerod %s: %s%s%s", ZD_VERSION, job->job.name,
            job->job.run_name[0] ? ", " : "", job->job.run_name);
    return report;
}

void report_destroy(struct report *report)
{
    if (!report)
        return;
    if (report->has_bar) {
        bar_remove(report);
        zd_log_set_bar(NULL, NULL, NULL);
    }
    free(report);
}

struct train_observer report_observer(struct report *report)
{
    if (!report)
        return (struct train_observer){0};
    return (struct train_observer){
            .ctx = report, .banner = on_banner, .step = on_step, .end = on_end};
}
