/* cli_machine.c - the machine that a job is planned for. */
#include "daemon/command/cli.h"
#include "train/plan/machine.h"

const struct plan_machine *cli_machine(
        const struct cli_args *args, const struct job *job)
{
    return args->machine ? plan_machine_find(args->machine)
                         : plan_machine_default(device_resolve(
                                   job_options(job)->device.backend));
}
