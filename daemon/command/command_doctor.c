/* command_doctor.c - what a machine has for zerod, or for a job on so many
 * ranks: joins them, as a run does, and ends without a step. */
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "daemon/doctor/doctor.h"

static void tell(const struct cli_args *args, const struct doctor *doctor)
{
    if (cli_wants_json(args)) {
        output_json(doctor->report);
        return;
    }
    OUTPUT(stream);
    doctor_print(doctor, stream);
}

static enum zd_status examine(
        const struct cli_args *args, const struct train_job *options,
        bool has_job, struct comm *comm)
{
    struct doctor doctor;
    doctor_examine(&doctor, options, has_job, comm);
    if (has_job && comm_rank(comm) == 0 && !doctor_stops(&doctor) &&
        cli_check_weights(options) != ZD_OK)
        doctor_stop(&doctor);
    enum zd_status status = doctor_compare(&doctor, comm);
    if (status == ZD_OK && comm_rank(comm) == 0)
        tell(args, &doctor);
    if (status == ZD_OK && doctor_stops(&doctor))
        status = ZD_ERR_UNFIT; /* told: no record */
    doctor_fini(&doctor);
    return status;
}

enum zd_status command_doctor(struct cli_args *args)
{
    struct train_job defaults = train_job_default();
    struct job *job = NULL;
    struct comm *comm;
    ZD_TRY(cli_join(args, &defaults.comm, &comm));
    cli_configure_log(args, comm_rank(comm));
    enum zd_status status = ZD_OK;
    if (args->job)
        status = cli_need_job(args, comm_size(comm), JOB_PATHS_IGNORED, &job);
    status = comm_agree(comm, status);
    if (status == ZD_OK && job && comm_rank(comm) == 0)
        status = cli_check_limits(args, job_options(job));
    ZD_THEN(status, examine(args, job ? job_options(job) : &defaults,
                            job != NULL, comm));
    job_free(job);
    cli_part(comm);
    return status;
}
