/* begin.h - a job for a model, its data and this machine, that fits.
 *
 * Reads the first data file: its format, and the length of its documents. The
 * job trains the whole model if that fits, else adapters, with the settings
 * predicted to be the fastest of those that fit (train/plan/search.h).
 */
#pragma once

#include "daemon/init/draft.h"
#include "daemon/job/job.h"

struct plan_machine;

enum begin_kind { BEGIN_ANY, BEGIN_FULL, BEGIN_LORA, BEGIN_QLORA };

struct begin_request {
    const char *model, *data;
    const char *data_name, *data_split; /* of the folder `data`; or NULL */
    enum begin_kind kind;
    int world;
    const struct plan_machine *machine;   /* of predictions */
    const struct job_override *overrides; /* limits, which stay out of it */
    int override_count;
};

/* ZD_ERR_UNFIT where nothing of that kind fits, naming the smallest machine
 * that would do. */
enum zd_status begin_job(
        const struct begin_request *request, struct draft *draft);

/* The settings of a candidate, each with its reason. */
struct plan_found;
void draft_set_found(struct draft *draft, const struct plan_found *found);
