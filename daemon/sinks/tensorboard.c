/* tensorboard.c - output_dir/tensorboard/events.out.tfevents.*: the run's
 * curves and samples for `tensorboard --logdir OUT`.
 *
 * One folder is one run there, named by its path below --logdir. A run that
 * was resumed is the same run, so the folder has a fixed name and each process
 * adds a file of its own; TensorBoard merges them by their names, which begin
 * with the time. (transformers makes a folder of each start, and shows a run
 * that was resumed as several.)
 *
 * Steps are written at log.logging_steps, with the values of that step. */
#include "base/clock.h"
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/sinks/sink.h"
#include "daemon/sinks/tensorboard_record.h"
#include "train/report/file_writer.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TAG_MAX = 64 };

struct tensorboard {
    const struct train_job *job;
    struct file_writer *writer; /* NULL: nothing was written yet */
    bool was_told;              /* that it cannot be opened */
};

/* --- the file --- */

/* A name that sorts after those of earlier processes. */
static void choose_path(
        const struct run_state *state, const char *dir, char *path)
{
    char name[160];
    int number = 0;
    do {
        ZD_PRINT(
                name, "events.out.tfevents.%010lld.%s.%ld.%d",
                (long long)time(NULL),
                state->facts.host[0] ? state->facts.host : "host",
                (long)getpid(), number++);
        fs_join(path, PATH_MAX, dir, name);
    } while (fs_exists(path) && number < 100);
}

/* Frees `records`. */
static void write_records(struct tensorboard *tb, struct record_bytes *records)
{
    if (file_writer_add(tb->writer, records->data, records->used) != ZD_OK)
        zd_error_clear();
    record_bytes_fini(records);
}

/* Before the first event. */
static bool begin(struct tensorboard *tb, const struct run_state *state)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct record_bytes records = {0};
    if (tb->writer)
        return true;
    fs_join(dir, sizeof dir, tb->job->job.output_dir, "tensorboard");
    mkdir(dir, 0755);
    choose_path(state, dir, path);
    if (file_writer_open(path, FILE_NEW, 0, NULL, &tb->writer) != ZD_OK) {
        if (!tb->was_told)
            zd_log_warning("%s; training goes on", zd_error_get()->what);
        tb->was_told = true;
        zd_error_clear();
        return false;
    }
    record_add_version(&records, clock_wall_seconds());
    if (state->facts.first_step > 0)
        record_add_restart(
                &records, clock_wall_seconds(), state->facts.first_step + 1);
    write_records(tb, &records);
    return true;
}

/* Frees `summary`. */
static void add_event(
        struct tensorboard *tb, const struct run_state *state, double time,
        int64_t step, struct record_bytes *summary)
{
    struct record_bytes records = {0};
    if (begin(tb, state)) {
        record_add_event(&records, time, step, summary);
        write_records(tb, &records);
    }
    record_bytes_fini(summary);
}

/* --- what is written --- */

static void add_series(
        struct record_bytes *summary, const struct metric_table *table,
        const void *from)
{
    ZD_EACH(metric, table->rows, table->count)
        if (metric->series && metric_is_known(metric, from, 0))
            record_add_scalar(
                    summary, metric->series, metric_number(metric, from, 0));
}

static void on_step(struct tensorboard *tb, const struct run_state *state)
{
    struct record_bytes summary = {0};
    if (!train_step_is_logged(&state->step, &tb->job->log))
        return;
    add_series(&summary, &step_metrics, &state->step);
    if (state->rank_count > 0)
        add_series(&summary, &rank_metrics, &state->ranks[0]);
    add_event(tb, state, state->updated, state->step.step, &summary);
}

static void on_eval(struct tensorboard *tb, const struct run_state *state)
{
    struct record_bytes summary = {0};
    add_series(&summary, &run_metrics, state);
    add_event(tb, state, clock_wall_seconds(), state->eval_step, &summary);
}

/* "samples/" and the beginning of the prompt: the samples of one prompt are one
 * series. Whole characters of UTF-8, on one line. */
static void sample_tag(const char *prompt, char *tag)
{
    size_t used = (size_t)snprintf(tag, TAG_MAX, "samples/");
    size_t bytes = strlen(prompt), room = TAG_MAX - 1 - used;
    if (bytes > room) {
        bytes = room;
        while (bytes > 0 && ((unsigned char)prompt[bytes] & 0xc0) == 0x80)
            bytes--;
    }
    for (size_t i = 0; i < bytes; i++)
        tag[used++] = (unsigned char)prompt[i] < 0x20 ? ' ' : prompt[i];
    if (bytes == 0)
        used += (size_t)snprintf(tag + used, TAG_MAX - used, "(no prompt)");
    tag[used] = '\0';
}

/* A block of code in Markdown (four spaces before each line), so that the text
 * is shown as it is. malloc'd. */
static char *code_block(const char *prompt, const char *answer)
{
    char *text;
    FILE *out = text_stream_open(&text, NULL);
    const char *parts[] = {prompt, answer};
    fputs("    ", out);
    for (int i = 0; i < 2; i++)
        for (const char *c = parts[i]; *c; c++) {
            fputc(*c, out);
            if (*c == '\n')
                fputs("    ", out);
        }
    fclose(out);
    return text;
}

static void on_sample(struct tensorboard *tb, const struct run_state *state)
{
    struct record_bytes summary = {0};
    char tag[TAG_MAX];
    const json_t *sample = json_array_get(state->samples, 0);
    const char *prompt = json_string_at(sample, "prompt");
    if (!sample)
        return;
    ZD_FREED char *text = code_block(prompt, json_string_at(sample, "text"));
    sample_tag(prompt, tag);
    record_add_text(&summary, tag, text);
    add_event(
            tb, state, json_number_value(json_object_get(sample, "time")),
            json_integer_at(sample, "step"), &summary);
}

static void take(void *ctx, const char *news, const struct run_state *state)
{
    if (strcmp(news, "step") == 0)
        on_step(ctx, state);
    else if (strcmp(news, "eval") == 0)
        on_eval(ctx, state);
    else if (strcmp(news, "sample") == 0)
        on_sample(ctx, state);
}

static void close_tensorboard(void *ctx, const struct run_state *state)
{
    struct tensorboard *tb = ctx;
    file_writer_close(tb->writer);
    free(tb);
}

enum zd_status tensorboard_open(
        const struct train_job *job, struct sink *sink_out)
{
    if (!job->report.tensorboard)
        return ZD_OK;
    struct tensorboard *tb = zd_array(1, sizeof *tb);
    tb->job = job;
    *sink_out =
            (struct sink){.ctx = tb, .take = take, .close = close_tensorboard};
    return ZD_OK;
}
