/* outcome.c - what a command comes to, the same on all ranks. */
#include "train/command/commands.h"

enum zd_status command_fail(struct command_outcome *outcome)
{
    outcome->error = *zd_error_get();
    outcome->status = outcome->error.status;
    zd_error_clear();
    return ZD_OK;
}

enum zd_status command_settle(
        struct trainer *trainer, enum zd_status status,
        struct command_outcome *outcome)
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
