#include "train/command/commands.h"

#include "base/log.h"
#include "train/trainer/rank_report.h"

#include <string.h>

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

/* --- the commands --------------------------------------------------------- */

/* The last of a run: nothing goes on meanwhile. */
static enum zd_status save_last(
        struct trainer *trainer, struct command_outcome *outcome)
{
    ZD_TRY(between_begin(trainer));
    ZD_TRY(command_settle(
            trainer, trainer_save(trainer, SAVE_STOPPING), outcome));
    ZD_TRY(between_end(trainer));
    if (outcome->status == ZD_OK)
        outcome->result = json_pack("{s:s}", "path", trainer->last_checkpoint);
    return ZD_OK;
}

static enum zd_status do_eval(
        struct trainer *trainer, struct command_outcome *outcome)
{
    enum zd_status read = ZD_OK;
    if (!trainer->plan.shape.eval_B) {
        ZD_FAIL(ZD_ERR_USAGE, "E1010", "this run has no evaluation data");
        zd_fail_help("[[data.eval]] or data.val_split in the job file");
        return command_fail(outcome);
    }
    ZD_TRY(command_settle(trainer, trainer_open_eval(trainer), outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    ZD_TRY(between_begin(trainer));
    ZD_TRY(trainer_evaluate(trainer, &read));
    ZD_TRY(command_settle(trainer, read, outcome));
    if (outcome->status == ZD_OK)
        outcome->result = json_pack(
                "{s:o}", "eval_loss",
                json_number_or_null(trainer->state.eval_loss));
    return between_end(trainer);
}

static enum zd_status do_sample(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    const struct sample_options *options = &trainer->job->sample;
    const char *prompt = command->prompt;
    struct sample_request request = {
            .prompts = prompt[0] ? &prompt : options->prompts,
            .count = prompt[0] ? 1 : options->prompt_count,
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
        return command_fail(outcome);
    ZD_TRY(command_settle(
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

static enum zd_status do_stop(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    trainer_tell_state(trainer, RUN_STOPPING);
    if (command->save)
        ZD_TRY(save_last(trainer, outcome));
    else
        outcome->result = json_object();
    trainer->is_stopped = outcome->status == ZD_OK;
    return ZD_OK;
}

static enum zd_status do_pause(
        struct trainer *trainer, struct command_outcome *outcome)
{
    if (trainer->is_paused) {
        ZD_FAIL(ZD_ERR_USAGE, "E1002", "the run is already paused");
        zd_fail_help("resume continues the run");
        return command_fail(outcome);
    }
    /* nothing of the last step is under way while the run holds */
    ZD_TRY(between_begin(trainer));
    trainer->is_paused = true;
    outcome->result = json_object();
    return rank_report_ask(trainer); /* the last that is heard of them */
}

static enum zd_status do_resume(
        struct trainer *trainer, struct command_outcome *outcome)
{
    if (!trainer->is_paused) {
        ZD_FAIL(ZD_ERR_USAGE, "E1003", "the run is not paused");
        return command_fail(outcome);
    }
    trainer->is_paused = false;
    return between_end(trainer);
}

static enum zd_status act(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    switch (command->kind) {
    case COMMAND_CHECKPOINT:
        return checkpoint_begin(trainer, command, outcome);
    case COMMAND_PAUSE:
        return do_pause(trainer, outcome);
    case COMMAND_RESUME:
        return do_resume(trainer, outcome);
    case COMMAND_STOP:
        return do_stop(trainer, command, outcome);
    case COMMAND_SET:
        return settings_set(trainer, command, outcome);
    case COMMAND_PROFILE:
        return profile_begin(trainer, command, outcome);
    case COMMAND_EVAL:
        return do_eval(trainer, outcome);
    case COMMAND_SAMPLE:
        return do_sample(trainer, command, outcome);
    case COMMAND_KINDS:
        break;
    }
    ZD_FAIL(ZD_ERR_USAGE, "E1004", "this run does not know the command");
    return command_fail(outcome);
}

enum zd_status trainer_command(struct trainer *trainer)
{
    struct command_outcome outcome = {0};
    struct train_command command = trainer->command; /* rank 0's */
    ZD_TRY(comm_broadcast(trainer->comm, &command, sizeof command, 0));
    comm_work(trainer->comm, WORK_COMMAND);
    enum zd_status status = act(trainer, &command, &outcome);
    comm_work(trainer->comm, WORK_NONE);
    if (status == ZD_OK) {
        trainer->has_command = false;
        if (!outcome.is_later)
            command_tell(trainer, &command, &outcome);
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
    if (trainer->trace && trainer_is_first(trainer))
        control->done(
                control->ctx, &trainer->profiled, trainer->state.step, &error,
                NULL);
    if (trainer->saves.asked.state != ASKED_NOT && trainer_is_first(trainer))
        control->done(
                control->ctx, &trainer->saves.asked.command,
                trainer->saves.asked.step, &error, NULL);
    trainer->saves.asked.state = ASKED_NOT;
    if (!trainer->has_command)
        return;
    trainer->has_command = false;
    control->done(
            control->ctx, &trainer->command, trainer->state.step, &error, NULL);
}
