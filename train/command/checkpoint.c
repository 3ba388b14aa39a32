/* checkpoint.c - the command that saves: accepted at one boundary, and told
 * when the checkpoint is there. */
#include "train/command/commands.h"

/* The one before is told first. */
static enum zd_status make_way(struct trainer *trainer)
{
    if (trainer->saves.asked.state == ASKED_NOT)
        return ZD_OK;
    ZD_TRY(save_settle(trainer));
    return checkpoint_end(trainer);
}

enum zd_status checkpoint_begin(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    struct asked_save *asked = &trainer->saves.asked;
    ZD_TRY(command_settle(trainer, save_check(trainer), outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    ZD_TRY(make_way(trainer));
    ZD_TRY(between_begin(trainer));
    ZD_TRY(command_settle(trainer, trainer_save(trainer, SAVE_ASKED), outcome));
    ZD_TRY(between_end(trainer));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    outcome->is_later = asked->state == ASKED_WRITING;
    if (!outcome->is_later) {
        outcome->result = json_pack("{s:s}", "path", trainer->last_checkpoint);
        return ZD_OK;
    }
    asked->command = *command;
    return ZD_OK;
}

enum zd_status checkpoint_end(struct trainer *trainer)
{
    struct asked_save *asked = &trainer->saves.asked;
    struct command_outcome outcome = {.was_before = true, .step = asked->step};
    if (asked->state != ASKED_ENDED)
        return ZD_OK;
    asked->state = ASKED_NOT;
    zd_error_set(&asked->error);
    ZD_TRY(command_settle(trainer, asked->status, &outcome));
    if (outcome.status == ZD_OK)
        outcome.result = json_pack("{s:s}", "path", asked->path);
    command_tell(trainer, &asked->command, &outcome);
    json_decref(outcome.result);
    return ZD_OK;
}
