/* tell.c - what is heard of a run at rank 0: the observer, metrics.jsonl and
 * events.jsonl. */
#include "base/log.h"
#include "train/trainer/trainer.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* What may be long is no hang. A start says so part by part (train/setup.c). */
static void tell_watch(struct trainer *trainer, enum train_run_state state)
{
    static const enum comm_work works[RUN_STATES] = {
            [RUN_WAITING] = WORK_DATA,
            [RUN_EVALUATING] = WORK_EVALUATE,
            [RUN_SAMPLING] = WORK_SAMPLE,
            [RUN_CHECKPOINTING] = WORK_SAVE};
    if (state != RUN_STARTING)
        comm_work(trainer->comm, works[state]);
}

void trainer_tell_state(struct trainer *trainer, enum train_run_state state)
{
    if (trainer->run_state == state && state != RUN_STARTING)
        return;
    trainer->run_state = state;
    tell_watch(trainer, state);
    if (!trainer_is_first(trainer))
        return;
    json_t *members = state == RUN_STARTING
                              ? job_plan_parameters(&trainer->plan)
                              : json_object();
    json_object_set_new(
            members, "state", json_string(train_run_state_name(state)));
    events_tell(trainer->events, "state", trainer->state.step, members);
}

enum zd_status trainer_tell_step(
        struct trainer *trainer, const struct train_step_report *report)
{
    const struct train_observer *observer = trainer->observer;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    json_t *row = metrics_row(report);
    if (events_want_steps(trainer->events))
        events_tell(trainer->events, "step", report->step, json_incref(row));
    ZD_TRY(metrics_add(trainer->metrics, row));
    trainer_state_step(trainer, report);
    if (observer->step)
        observer->step(observer->ctx, report);
    return ZD_OK;
}

enum zd_status trainer_tell_eval(struct trainer *trainer, double eval_loss)
{
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return ZD_OK;
    zd_log_info(
            "eval  step %lld  eval_loss %.4f  perplexity %.4g", (long long)step,
            eval_loss, exp(eval_loss));
    events_tell(
            trainer->events, "eval", step,
            json_pack("{s:o}", "eval_loss", json_number_or_null(eval_loss)));
    trainer_state_eval(trainer, eval_loss);
    return metrics_eval(trainer->metrics, step, eval_loss);
}

/* One line whatever the text holds. */
static void copy_line(char *out, size_t out_bytes, const char *text)
{
    size_t used = 0;
    for (; *text && used + 3 < out_bytes; text++) {
        if (*text == '\n')
            out[used++] = '\\';
        out[used++] = *text == '\n' ? 'n' : *text;
    }
    out[used] = '\0';
}

void trainer_tell_sample(struct trainer *trainer, json_t *sample)
{
    char before[256], after[2048];
    int64_t step = trainer->state.step;
    if (!trainer_is_first(trainer))
        return;
    const char *prompt = json_string_at(sample, "prompt");
    const char *text = json_string_at(sample, "text");
    if (prompt && text) {
        copy_line(before, sizeof before, prompt);
        copy_line(after, sizeof after, text);
        zd_log_info("sample  step %lld  %s|%s", (long long)step, before, after);
    }
    events_tell(trainer->events, "sample", step, json_incref(sample));
}

/* Of all files of a folder; 0: not known. */
static uint64_t folder_bytes(const char *path)
{
    uint64_t bytes = 0;
    struct stat info;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) ==
                    0 &&
            S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    if (dir)
        closedir(dir);
    return bytes;
}

void trainer_tell_saved(
        struct trainer *trainer, const struct train_saved *saved)
{
    if (!trainer_is_first(trainer))
        return;
    zd_log_info("saved %s", saved->path);
    events_tell(
            trainer->events, "checkpoint", saved->step,
            json_pack(
                    "{s:s, s:f, s:f, s:f, s:I}", "path", saved->path, "seconds",
                    saved->seconds, "stall_seconds", saved->stall_seconds,
                    "write_seconds", saved->write_seconds, "bytes",
                    (json_int_t)folder_bytes(saved->path)));
}

enum zd_status trainer_share_error(
        struct trainer *trainer, struct zd_error *out)
{
    struct comm *comm = trainer->comm;
    int64_t teller = comm_size(comm);
    *out = *zd_error_get();
    if (out->status != ZD_OK)
        teller = comm_rank(comm);
    zd_error_clear();
    ZD_TRY(comm_all_reduce_i64(comm, &teller, 1, COMM_MIN));
    return teller < comm_size(comm)
                   ? comm_broadcast(comm, out, sizeof *out, (int)teller)
                   : ZD_OK;
}

/* --- hangs ---------------------------------------------------------------- */

static void tell_hang(void *ctx, const struct watch_hang *hang)
{
    const struct hang_told *told = ctx;
    json_t *members = json_pack(
            "{s:i, s:s, s:s, s:f}", "rank", hang->rank, "host", hang->host,
            "operation", hang->operation, "seconds", hang->seconds);
    if (told->events) {
        events_tell(told->events, "hang", hang->step, members);
        events_sync(told->events);
    } else {
        events_append(told->path, "hang", hang->step, members);
    }
}

static void tell_stalled(void *ctx, const struct watch_hang *hang)
{
    const struct hang_told *told = ctx;
    const struct train_observer *observer = told->observer;
    if (observer->stalled)
        observer->stalled(observer->ctx, hang);
}

void hang_listen(struct trainer *trainer, const char *path)
{
    struct watch_listener listener = {
            .ctx = &trainer->hang, .hang = tell_hang, .stalled = tell_stalled};
    trainer->hang.observer = trainer->observer;
    strcpy(trainer->hang.path, path);
    trainer->hang.events = trainer->events;
    comm_listen(trainer->comm, &listener);
}

void hang_forget(struct trainer *trainer)
{
    comm_listen(trainer->control, &(struct watch_listener){0});
}
