#include "train/job/deadline.h"

#include "base/log.h"

#include <stdlib.h>
#include <time.h>

#define SLURM_VARIABLE "SLURM_JOB_END_TIME"

/* A shell may still have the environment of an earlier job, so a time in the
 * past is ignored. */
static void take_slurm(double start, struct deadline *out)
{
    const char *text = getenv(SLURM_VARIABLE);
    char *end;
    if (!text || !text[0])
        return;
    double at = strtod(text, &end);
    if (*end || !(at > start && at < 1e11)) {
        zd_log_warning(
                SLURM_VARIABLE " = \"%.40s\" is no moment to come: this run "
                               "has no deadline",
                text);
        return;
    }
    out->at = at;
    out->is_slurm = true;
}

void deadline_init(
        const struct run_options *options, double start, struct deadline *out)
{
    *out = (struct deadline){.margin = options->deadline_margin};
    if (options->deadline > 0)
        out->at = start + options->deadline;
    else
        take_slurm(start, out);
}

bool deadline_has_come(
        const struct deadline *deadline, double now, double save_seconds,
        double step_seconds)
{
    double margin = deadline->margin > 0 ? deadline->margin
                                         : 2 * save_seconds + 2 * step_seconds;
    return deadline->at > 0 && now + margin >= deadline->at;
}

void deadline_print(
        const struct deadline *deadline, double now, char *out, size_t bytes)
{
    char text[32], when[64] = "in time for";
    struct tm tm;
    time_t at = (time_t)deadline->at;
    gmtime_r(&at, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (now > deadline->at)
        ZD_PRINT(when, "%.1f s after", now - deadline->at);
    snprintf(
            out, bytes, "%s the deadline %s%s", when, text,
            deadline->is_slurm ? " (" SLURM_VARIABLE ")" : "");
}
