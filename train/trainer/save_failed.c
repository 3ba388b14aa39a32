/* save_failed.c - which failures of saves a run survives. */
#include "base/clock.h"
#include "base/log.h"
#include "train/trainer/trainer.h"

enum { FAILED_SAVES_MAX = 3 };

/* Collective. Whichever rank has the record, rank 0 says it: its warnings are
 * events, and in the status. */
static enum zd_status tell_failed(struct trainer *trainer, int64_t step)
{
    struct zd_error error = *zd_error_get();
    int64_t teller =
            error.status != ZD_OK ? (int64_t)comm_rank(trainer->comm) : -1;
    zd_error_clear();
    ZD_TRY(comm_all_reduce_i64(trainer->comm, &teller, 1, COMM_MAX));
    if (teller < 0)
        return ZD_OK;
    ZD_TRY(comm_broadcast(trainer->comm, &error, sizeof error, (int)teller));
    if (trainer_is_first(trainer))
        zd_log_warning(
                "checkpoint at step %lld was not saved, training goes "
                "on: %s",
                (long long)step, error.what);
    return ZD_OK;
}

enum zd_status save_tolerate(
        struct trainer *trainer, enum zd_status status, int64_t step, bool must)
{
    /* a transport that is gone cannot be tolerated */
    if (status == ZD_OK || status == ZD_ERR_PEER)
        return status;
    if (must || ++trainer->saves.failed >= FAILED_SAVES_MAX) {
        struct zd_error error = *zd_error_get();
        if (error.status != ZD_OK) {
            error.status = ZD_ERR_IO;
            zd_error_set(&error);
        }
        return ZD_ERR_IO;
    }
    /* by time: the next try is an interval later, not in the next step */
    trainer->last_save_time = clock_seconds();
    return tell_failed(trainer, step);
}
