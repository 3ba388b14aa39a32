#include "daemon/state/messages.h"

#include "base/clock.h"
#include "base/device/device.h"
#include "train/checkpoint/checkpoint.h"
#include "train/plan/machine.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the banner: once, before step 1 --- */

static void describe_resumed(
        const struct train_banner *banner, struct message_banner *out)
{
    char path[PATH_MAX];
    struct stat info;
    out->facts.first_step = banner->state->step;
    if (!banner->resumed_from)
        return;
    ZD_PRINT(out->resumed_from, "%s", banner->resumed_from);
    if (stat(banner->resumed_from, &info) == 0)
        out->checkpoint_time = (double)info.st_mtime;
    const char *dir = banner->job->job.output_dir;
    ZD_PRINT(path, "%.4000s/metrics.jsonl", dir);
    out->series = series_read(path, banner->state->step);
    ZD_PRINT(path, "%.4000s/events.jsonl", dir);
    out->past = past_read(path);
}

static void on_banner(void *ctx, const struct train_banner *banner)
{
    struct tee *tee = ctx;
    const struct job_plan *plan = banner->plan;
    const struct train_state *run = banner->state;
    struct message_banner message = {
            .plan = job_plan_json(plan, banner->arena),
            .facts.world = banner->world,
            .facts.zero_stage = plan->zero.request.options.stage,
            .facts.per_device = plan->per_device,
            .facts.accumulation = plan->accumulation,
            .facts.accumulation_max = banner->accumulation_max,
            .facts.global_batch = plan->global_batch,
            .facts.parameters = (int64_t)plan->table.total,
            .facts.trainable = (int64_t)plan->table.trainable,
            .facts.max_steps = run->max_steps,
            .facts.samples_per_epoch = banner->samples,
            .facts.bad_rows =
                    banner->data ? dataset_summary(banner->data).bad_rows : 0,
            .facts.samples_taken = run->samples_taken,
            .facts.tokens = run->tokens_seen,
            .facts.eval_loss = run->eval_loss,
            .facts.best_eval_loss = run->best_eval_loss,
            .facts.flops_per_token = model_flops_per_token(
                    &plan->config, &plan->table, plan->shape.T),
            .facts.peak = plan_machine_peak(device_facts().name),
            .loss_scale = run->loss_scale.scale,
            .live = run->live,
            .facts.deadline = banner->deadline,
            .facts.has_eval_data = plan->shape.eval_B > 0,
    };
    memcpy(message.facts.settings, banner->settings,
           sizeof message.facts.settings);
    gethostname(message.facts.host, sizeof message.facts.host - 1);
    describe_resumed(banner, &message);
    if (!queue_push(tee->queue, MESSAGE_BANNER, &message, sizeof message)) {
        json_decref(message.plan);
        series_free(message.series);
        past_free(message.past);
    }
    struct train_banner whole = *banner;
    whole.socket_path = tee->socket_path;
    tee->next->banner(tee->next->ctx, &whole);
}

/* --- steps, and what comes between them --- */

static void on_step(void *ctx, const struct train_step_report *report)
{
    struct tee *tee = ctx;
    queue_push(tee->queue, MESSAGE_STEP, report, sizeof *report);
    tee->next->step(tee->next->ctx, report);
}

static void on_end(void *ctx, const struct train_end *end)
{
    struct tee *tee = ctx;
    char by[STOPPED_MAX];
    ZD_PRINT(by, "%s", end->stopped_by ? end->stopped_by : "");
    queue_push(tee->queue, MESSAGE_END, by, sizeof by);
    tee->next->end(tee->next->ctx, end);
}

/* By the watch's thread. */
static void on_stalled(void *ctx, const struct watch_hang *hang)
{
    struct tee *tee = ctx;
    struct message_stall message = {
            .is_stalled = hang != NULL, .time = clock_wall_seconds()};
    if (hang) {
        message.rank = hang->rank;
        message.step = hang->step;
        message.since = message.time - hang->seconds;
        ZD_PRINT(message.host, "%s", hang->host);
        ZD_PRINT(message.operation, "%s", hang->operation);
    }
    queue_push(tee->queue, MESSAGE_STALL, &message, sizeof message);
}

static void on_ranks(
        void *ctx, const struct train_rank_report *ranks, int count)
{
    struct tee *tee = ctx;
    struct message_ranks message = {count};
    queue_push_with(
            tee->queue, MESSAGE_RANKS, &message, sizeof message, ranks,
            (size_t)count * sizeof *ranks);
}

static void on_event(void *ctx, const struct train_event *event)
{
    struct tee *tee = ctx;
    struct message_event message = {event->id, event->step, event->time, ""};
    bool is_step = strcmp(event->kind, "step") == 0;
    ZD_PRINT(message.kind, "%s", event->kind);
    queue_push_with(
            tee->queue, is_step ? MESSAGE_STEP_EVENT : MESSAGE_EVENT, &message,
            sizeof message, event->text, strlen(event->text) + 1);
}

struct train_observer tee_observer(struct tee *tee)
{
    return (struct train_observer){
            .ctx = tee,
            .banner = on_banner,
            .step = on_step,
            .end = on_end,
            .ranks = on_ranks,
            .event = on_event,
            .stalled = on_stalled};
}
