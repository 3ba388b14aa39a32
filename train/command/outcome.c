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
    struct comm *comm = trainer->comm;
    bool knows = zd_error_get()->status != ZD_OK;
    int64_t teller = knows ? comm_rank(comm) : comm_size(comm);

    outcome->status = status;
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    ZD_TRY(comm_all_reduce_i64(comm, &teller, 1, COMM_MIN));
    outcome->error = *zd_error_get();
    zd_error_clear();
    if (teller == comm_size(comm))
        outcome->error = (struct zd_error){
                .status = status, .code = "E1001", .what = "it failed"};
    else
        ZD_TRY(comm_broadcast(
                comm, &outcome->error, sizeof outcome->error, (int)teller));
    return ZD_OK;
}
