/* commands.c - executes each command and reports its outcome. */
#include "train/command/commands.h"

#include "base/log.h"
#include "base/units.h"
#include "train/trainer/rank_report.h"

#include <math.h>
#include <string.h>

/* The outcome of a command; the same on all ranks except `result`. */
struct outcome {
    const struct train_command *command;
    int64_t step;
    enum zd_status status; /* of a failure that the run tolerates, with the
                              record in `error` */
    struct zd_error error;
    json_t *result; /* rank 0; owned, may be NULL */
    bool is_later;  /* accepted; tell_later reports its end */
};

/* Stores a failure that all ranks found from the same facts; call it after
 * ZD_FAIL on every rank. Returns ZD_OK: the run continues. */
static enum zd_status fail(struct outcome *outcome)
{
    outcome->error = *zd_error_get();
    outcome->status = outcome->error.status;
    zd_error_clear();
    return ZD_OK;
}

/* Collective: shares a tolerable failure of one or more ranks with all: moves
 * the record to `error` on every rank. Passes ZD_ERR_PEER on. */
static enum zd_status settle(
        struct trainer *trainer, enum zd_status status, struct outcome *outcome)
{
    outcome->status = status;
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    ZD_TRY(trainer_share_error(trainer, &outcome->error));
    if (outcome->error.status == ZD_OK)
        outcome->error = (struct zd_error){
                .status = status, .code = "E1001", .what = "it failed"};
    return ZD_OK;
}

/* --- what is told --------------------------------------------------------- */

static json_t *id_or_null(int64_t id)
{
    return id >= 0 ? json_integer((json_int_t)id) : json_null();
}

/* `given` NULL: all settings. */
static void add_settings(
        json_t *json, const bool *given, const double values[SETTINGS])
{
    for (int id = 0; id < SETTINGS; id++) {
        bool is_whole = train_settings[id].is_integer && !isnan(values[id]);
        if (!given || given[id])
            json_object_set_new(
                    json, train_settings[id].name,
                    is_whole ? json_integer((json_int_t)values[id])
                             : json_number_or_null(values[id]));
    }
}

/* The members of the command's event: "command", its parameters, "uid", "pid".
 * New reference. */
static json_t *command_json(const struct train_command *command)
{
    json_t *json =
            json_pack("{s:s}", "command", train_command_name(command->kind));
    switch (command->kind) {
    case COMMAND_SAMPLE:
        json_object_set_new(json, "prompt", json_string(command->prompt));
        json_object_set_new(json, "chat", json_boolean(command->chat));
        json_object_set_new(
                json, "max_new_tokens", json_integer(command->max_new_tokens));
        break;
    case COMMAND_STOP:
        json_object_set_new(json, "checkpoint", json_boolean(command->save));
        break;
    case COMMAND_PROFILE:
        json_object_set_new(json, "steps", json_integer(command->steps));
        break;
    case COMMAND_SET:
        add_settings(json, command->given, command->value);
        break;
    default:
        break;
    }
    json_object_set_new(json, "uid", id_or_null(command->uid));
    json_object_set_new(json, "pid", id_or_null(command->pid));
    return json;
}

/* Logs a command; checkpoints, evaluations and samples have their own lines. */
static void say_done(
        const struct train_command *command, int64_t step, const json_t *result)
{
    const char *note = json_string_at(result, "note");
    const char *warning = json_string_at(result, "warning");
    switch (command->kind) {
    case COMMAND_PAUSE:
        zd_log_info("paused after step %lld", (long long)step);
        break;
    case COMMAND_RESUME:
        zd_log_info("resumed after step %lld", (long long)step);
        break;
    case COMMAND_SET:
        for (int id = 0; id < SETTINGS; id++)
            if (command->given[id])
                zd_log_info(
                        "set %s = %.10g after step %lld",
                        train_settings[id].name, command->value[id],
                        (long long)step);
        if (note)
            zd_log_info("%s", note);
        if (warning)
            zd_log_warning("%s", warning);
        break;
    default:
        break;
    }
}

/* Reports the outcome to rank 0's control and events. All ranks call it. */
static void tell(struct trainer *trainer, const struct outcome *outcome)
{
    const struct train_control *control = trainer->observer->control;
    const struct train_command *command = outcome->command;
    bool failed = outcome->status != ZD_OK;
    if (!trainer_is_first(trainer))
        return;
    if (failed)
        zd_log_warning(
                "%s was not done, the run %s: %s",
                train_command_name(command->kind),
                trainer->is_paused ? "stays paused" : "goes on",
                outcome->error.what);
    else
        say_done(command, outcome->step, outcome->result);
    json_t *event = command_json(command);
    if (failed)
        json_object_set_new(event, "error", json_string(outcome->error.what));
    events_tell(trainer->events, "command", outcome->step, event);
    control->done(
            control->ctx, command, outcome->step,
            failed ? &outcome->error : NULL, outcome->result);
}

/* Collective: reports the end of a command that was accepted before. */
static enum zd_status tell_later(
        struct trainer *trainer, const struct train_command *command,
        int64_t step, enum zd_status status, const char *path)
{
    struct outcome outcome = {.command = command, .step = step};
    ZD_TRY(settle(trainer, status, &outcome));
    if (outcome.status == ZD_OK)
        outcome.result = json_pack("{s:s}", "path", path);
    tell(trainer, &outcome);
    json_decref(outcome.result);
    return ZD_OK;
}

/* --- the commands --------------------------------------------------------- */

/* Its result is the path, unless it continues in the background. */
static enum zd_status save(
        struct trainer *trainer, enum save_reason reason,
        struct outcome *outcome)
{
    ZD_TRY(between_begin(trainer));
    ZD_TRY(settle(trainer, trainer_save(trainer, reason), outcome));
    ZD_TRY(between_end(trainer));
    outcome->is_later = outcome->status == ZD_OK && trainer->saves.current;
    if (outcome->status == ZD_OK && !outcome->is_later)
        outcome->result = json_pack("{s:s}", "path", trainer->last_checkpoint);
    return ZD_OK;
}

static enum zd_status do_eval(struct trainer *trainer, struct outcome *outcome)
{
    enum zd_status read = ZD_OK;
    if (!trainer->plan.shape.eval_B) {
        ZD_FAIL(ZD_ERR_USAGE, "E1010", "this run has no evaluation data");
        zd_fail_help("[[data.eval]] or data.val_split in the job file");
        return fail(outcome);
    }
    ZD_TRY(settle(trainer, trainer_open_eval(trainer), outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    ZD_TRY(between_begin(trainer));
    ZD_TRY(trainer_evaluate(trainer, &read));
    ZD_TRY(settle(trainer, read, outcome));
    if (outcome->status == ZD_OK)
        outcome->result = json_pack(
                "{s:o}", "eval_loss",
                json_number_or_null(trainer->state.eval_loss));
    return between_end(trainer);
}

static enum zd_status do_sample(
        struct trainer *trainer, struct outcome *outcome)
{
    const struct train_command *command = outcome->command;
    const struct sample_options *options = &trainer->job->sample;
    const char *prompt = command->prompt;
    struct sample_request request = {
            .prompts = prompt[0] ? &prompt : options->prompts,
            .count = prompt[0] ? 1 : options->prompt_count,
            .chat = command->chat || options->chat,
            .max_new_tokens = command->max_new_tokens > 0
                                      ? command->max_new_tokens
                                      : options->max_new_tokens,
            .is_asked = command->max_new_tokens > 0};
    if (!request.count) {
        ZD_FAIL(ZD_ERR_USAGE, "E1011",
                "no prompt is given, and the job has none");
        zd_fail_help("a prompt, or sample.prompts in the job file");
    } else if (!trainer->plan.shape.decode_capacity) {
        ZD_FAIL(ZD_ERR_USAGE, "E1014",
                "the memory of this run has no room for samples");
        zd_fail_help("sample.steps and sample.prompts in the job file plan for "
                     "them");
    }
    if (zd_error_get()->status != ZD_OK)
        return fail(outcome);
    ZD_TRY(settle(
            trainer,
            comm_agree(trainer->comm, trainer_sample_check(trainer, &request)),
            outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    outcome->result = json_pack("{s:[]}", "samples");
    request.told = json_object_get(outcome->result, "samples");
    ZD_TRY(between_begin(trainer));
    ZD_TRY(trainer_sample_request(trainer, &request));
    return between_end(trainer);
}

static enum zd_status do_stop(struct trainer *trainer, struct outcome *outcome)
{
    trainer_tell_state(trainer, RUN_STOPPING);
    if (outcome->command->save)
        ZD_TRY(save(trainer, SAVE_STOPPING, outcome));
    else
        outcome->result = json_object();
    trainer->is_stopped = outcome->status == ZD_OK;
    return ZD_OK;
}

static enum zd_status do_pause(struct trainer *trainer, struct outcome *outcome)
{
    if (trainer->is_paused) {
        ZD_FAIL(ZD_ERR_USAGE, "E1002", "the run is already paused");
        zd_fail_help("resume continues the run");
        return fail(outcome);
    }
    /* finish the last step's work before the run pauses */
    ZD_TRY(between_begin(trainer));
    trainer->is_paused = true;
    outcome->result = json_object();
    return rank_report_ask(trainer); /* the last report until the run
                                        continues */
}

static enum zd_status do_resume(
        struct trainer *trainer, struct outcome *outcome)
{
    if (!trainer->is_paused) {
        ZD_FAIL(ZD_ERR_USAGE, "E1003", "the run is not paused");
        return fail(outcome);
    }
    trainer->is_paused = false;
    return between_end(trainer);
}

/* Called when a save that a command requested has ended. */
static enum zd_status asked_ended(
        struct trainer *trainer, enum zd_status status)
{
    struct asked_save *asked = &trainer->saves.asked;
    asked->ended = NULL;
    return tell_later(
            trainer, &asked->command, asked->step, status,
            trainer->last_checkpoint);
}

/* Accepts the command at this boundary; reports when the checkpoint is
 * complete. */
static enum zd_status do_checkpoint(
        struct trainer *trainer, struct outcome *outcome)
{
    struct asked_save *asked = &trainer->saves.asked;
    ZD_TRY(settle(trainer, save_check(trainer), outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    if (asked->ended) /* report the previous one first */
        ZD_TRY(save_settle(trainer));
    ZD_TRY(save(trainer, SAVE_ASKED, outcome));
    if (outcome->is_later)
        *asked = (struct asked_save){
                asked_ended, *outcome->command, trainer->state.step};
    return ZD_OK;
}

/* Traces the next steps; reports after the last of them, or at the end of the
 * run. */
static enum zd_status do_profile(
        struct trainer *trainer, struct outcome *outcome)
{
    enum zd_status status = trace_begin(trainer, outcome->command->steps);
    ZD_TRY(settle(trainer, status, outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    trainer->profiled = *outcome->command;
    outcome->is_later = true;
    return ZD_OK;
}

enum zd_status profile_end(struct trainer *trainer)
{
    char path[PATH_MAX];
    if (!trainer->trace)
        return ZD_OK;
    enum zd_status status = trace_end(trainer, path);
    return tell_later(
            trainer, &trainer->profiled, trainer->state.step, status, path);
}

/* --- set ------------------------------------------------------------------ */

/* Ten times, minus a tolerance for rounding in the schedule. */
#define TENFOLD (10 * (1 - 1e-9))

static enum zd_status check_range(const struct train_command *command)
{
    int given = 0;
    for (int id = 0; id < SETTINGS; id++) {
        const struct train_setting *setting = &train_settings[id];
        double value = command->value[id];
        if (!command->given[id])
            continue;
        given++;
        if (!(value >= setting->min && value <= setting->max) ||
            (setting->is_above_min && value == setting->min) ||
            (setting->is_integer && value != floor(value)))
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E1005", "%s cannot be %.17g", setting->name,
                    value);
    }
    if (!given)
        return ZD_FAIL(ZD_ERR_USAGE, "E1005", "no setting is given");
    return ZD_OK;
}

/* Checks that depend on nothing local, so that all ranks agree. */
static enum zd_status check_set(
        const struct trainer *trainer, const struct train_command *command)
{
    ZD_TRY(check_range(command));
    if (command->given[SET_SAVE_STEPS] && !live_saves_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not save by a number of steps");
        return zd_fail_help("checkpoint.save_strategy = \"steps\"");
    }
    if (command->given[SET_EVAL_STEPS] && !live_evaluates_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not evaluate by a number of steps");
        return zd_fail_help(
                "eval.eval_strategy = \"steps\", and [[data.eval]]");
    }
    if (command->given[SET_LEARNING_RATE] &&
        !(live_scheduled_rate(trainer) > 0))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1007",
                "the schedule's learning rate is 0 at step %lld and cannot be "
                "scaled",
                (long long)trainer->state.step + 1);
    return ZD_OK;
}

/* Stops the loader's thread during the change, because it reads the plan. */
static enum zd_status change_accumulation(
        struct trainer *trainer, int accumulation, struct outcome *outcome)
{
    batches_stop(trainer);
    enum zd_status status = batches_accumulate(trainer, accumulation);
    if (status == ZD_ERR_UNFIT || status == ZD_ERR_CONFIG)
        fail(outcome); /* the same on all ranks, as the plan is */
    else
        ZD_TRY(status);
    return comm_agree(trainer->comm, batches_start(trainer));
}

/* For a new rate: adds its effect on the schedule, and a warning if it may be a
 * typo. `before`: the value that would have changed nothing. */
static void tell_rate(
        const struct trainer *trainer, double before, double now,
        json_t *result)
{
    char note[256], warning[160], times[UNITS_TEXT];
    json_object_set_new(
            result, "peak_learning_rate",
            json_number_or_null(live_peak_rate(trainer)));
    if (live_rate_note(trainer, note, sizeof note))
        json_object_set_new(result, "note", json_string(note));
    if (now / before < TENFOLD)
        return;
    ZD_PRINT(
            warning, "learning_rate rises %s-fold, from %.4g to %.4g",
            units_number(now / before, 3, times), before, now);
    json_object_set_new(result, "warning", json_string(warning));
}

static void tell_batch(
        const struct trainer *trainer, int64_t before, json_t *result)
{
    static const char key[] = "global_batch_size";
    json_object_set_new(result, key, json_integer(trainer->plan.global_batch));
    json_object_set_new(
            json_object_get(result, "before"), key, json_integer(before));
}

static double rate_to_set(const struct trainer *trainer)
{
    double peak = live_peak_rate(trainer);
    return isnan(peak) ? live_learning_rate(trainer) : peak;
}

static enum zd_status do_set(struct trainer *trainer, struct outcome *outcome)
{
    const struct train_command *command = outcome->command;
    double values[SETTINGS], rate = rate_to_set(trainer);
    int64_t batch = trainer->plan.global_batch;
    live_settings(trainer, values);
    if (check_set(trainer, command) != ZD_OK)
        return fail(outcome);
    if (command->given[SET_ACCUMULATION])
        ZD_TRY(change_accumulation(
                trainer, (int)command->value[SET_ACCUMULATION], outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    outcome->result = json_pack("{s:{}}", "before");
    add_settings(
            json_object_get(outcome->result, "before"), command->given, values);
    live_set(trainer, command);
    save_outdated(trainer);
    live_settings(trainer, values);
    add_settings(outcome->result, NULL, values);
    if (command->given[SET_ACCUMULATION])
        tell_batch(trainer, batch, outcome->result);
    if (command->given[SET_LEARNING_RATE])
        tell_rate(
                trainer, rate, command->value[SET_LEARNING_RATE],
                outcome->result);
    return ZD_OK;
}

/* --- the turn of a command ------------------------------------------------ */

bool commands_wait(struct trainer *trainer)
{
    const struct train_control *control = trainer->observer->control;
    if (!trainer_is_first(trainer) || !control || trainer->has_command)
        return trainer->has_command;
    memset(&trainer->command, 0, sizeof trainer->command);
    trainer->has_command =
            control->next(control->ctx, trainer->state.step, &trainer->command);
    return trainer->has_command;
}

enum zd_status trainer_command(struct trainer *trainer)
{
    static enum zd_status (*const acts[COMMAND_KINDS])(
            struct trainer * trainer, struct outcome * outcome) = {
            [COMMAND_CHECKPOINT] = do_checkpoint,
            [COMMAND_EVAL] = do_eval,
            [COMMAND_SAMPLE] = do_sample,
            [COMMAND_PAUSE] = do_pause,
            [COMMAND_RESUME] = do_resume,
            [COMMAND_STOP] = do_stop,
            [COMMAND_SET] = do_set,
            [COMMAND_PROFILE] = do_profile};
    struct train_command command = trainer->command; /* rank 0's command */
    struct outcome outcome = {.command = &command, .step = trainer->state.step};
    ZD_TRY(comm_broadcast(trainer->comm, &command, sizeof command, 0));
    comm_work(trainer->comm, WORK_COMMAND);
    enum zd_status status = acts[command.kind](trainer, &outcome);
    comm_work(trainer->comm, WORK_NONE);
    if (status == ZD_OK) {
        trainer->has_command = false;
        if (!outcome.is_later)
            tell(trainer, &outcome);
        if (!trainer->is_stopped)
            trainer_tell_state(
                    trainer, trainer->is_paused ? RUN_PAUSED : RUN_RUNNING);
    }
    json_decref(outcome.result);
    return status;
}

void commands_refuse(struct trainer *trainer)
{
    const struct train_control *control = trainer->observer->control;
    struct zd_error error = {
            .status = ZD_ERR_STOPPED,
            .code = "E1000",
            .what = "the run is ending; the command was not done"};
    const struct train_state *state = &trainer->state;
    struct asked_save *asked = &trainer->saves.asked;
    const struct {
        bool is_open;
        const struct train_command *command;
        int64_t step;
    } taken[] = {
            {trainer->trace, &trainer->profiled, state->step},
            {asked->ended, &asked->command, asked->step},
            {trainer->has_command, &trainer->command, state->step}};
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (taken[i].is_open && trainer_is_first(trainer))
            control->done(
                    control->ctx, taken[i].command, taken[i].step, &error,
                    NULL);
    asked->ended = NULL;
    trainer->has_command = false;
}
