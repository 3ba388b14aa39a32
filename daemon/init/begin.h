/* begin.h - a job for a model, its data and this machine, that fits.
 *
 * Of the data the first file is looked at: its form, and how long its
 * documents are. What the job trains is all of the model where that fits, else
 * adapters; how is the fastest by prediction of what fits
 * (train/plan/search.h).
 */
#ifndef ZD_DAEMON_INIT_BEGIN_H
#define ZD_DAEMON_INIT_BEGIN_H

#include "daemon/init/draft.h"
#include "daemon/job/job.h"

enum begin_kind { BEGIN_ANY, BEGIN_FULL, BEGIN_LORA, BEGIN_QLORA };

struct begin_request {
    const char *model, *data;
    enum begin_kind kind;
    int world, local_size;
    const char *machine;                  /* of predictions; NULL: this one */
    const struct job_override *overrides; /* limits, which stay out of it */
    int override_count;
};

/* ZD_ERR_UNFIT where nothing of that kind fits, naming the smallest machine
 * that would do. */
enum zd_status begin_job(
        const struct begin_request *request, struct draft *draft);

#endif
