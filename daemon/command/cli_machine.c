/* cli_machine.c - the machine that a job is planned for. */
#include "daemon/command/cli.h"
#include "train/plan/calibration.h"

#include <string.h>

static const char make_it[] = "zerod bench calibrate measures this machine";

enum zd_status cli_machine(
        const struct cli_args *args, const struct job *job,
        struct plan_calibration *here, const struct plan_machine **machine_out)
{
    const struct train_job *options = job_options(job);
    const char *name = args->machine;
    char why[400];
    bool wants_here = !name || strcmp(name, "here") == 0;
    *machine_out = wants_here ? plan_machine_default(
                                        device_resolve(options->device.backend))
                              : plan_machine_find(name);
    if (!wants_here)
        return ZD_OK;
    if (calibration_find_job(
                options, args->world ? (int)args->world : 1,
                (int)args->per_node, here, why)) {
        *machine_out = calibration_use(here);
        return ZD_OK;
    }
    if (why[0])
        zd_log_warning("the calibration is not used: %s; %s", why, make_it);
    if (!name)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0609",
            "--machine here: this machine has not been measured");
    zd_fail_help("%s", make_it);
    return ZD_ERR_NO_INPUT;
}
