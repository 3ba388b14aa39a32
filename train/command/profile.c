/* profile.c - the command that traces steps: accepted at one boundary, told at
 * a later one. */
#include "train/command/commands.h"

enum zd_status profile_begin(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    enum zd_status status = trace_begin(trainer, command->steps);
    ZD_TRY(command_settle(trainer, status, outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    trainer->profiled = *command;
    outcome->is_later = true;
    return ZD_OK;
}

enum zd_status profile_end(struct trainer *trainer)
{
    char path[PATH_MAX];
    struct command_outcome outcome = {0};
    if (!trainer->trace)
        return ZD_OK;
    ZD_TRY(command_settle(trainer, trace_end(trainer, path), &outcome));
    if (outcome.status == ZD_OK)
        outcome.result = json_pack("{s:s}", "path", path);
    command_tell(trainer, &trainer->profiled, &outcome);
    json_decref(outcome.result);
    return ZD_OK;
}
