/* command_run.c - train: from the command line to train_run on every rank.
 *
 *   read the job -> join the ranks -> check it on each, agree -> train -> one
 *   ending
 *
 * However many ranks fail, one reports why, and all end with the same code. */
#include "base/log.h"
#include "base/must.h"
#include "daemon/command/cli.h"
#include "daemon/control/control.h"
#include "daemon/report/report.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENDING_SECONDS = 10, GIVE_UP_SECONDS = 1, SYMPTOM_SECONDS = 3 };

/* --- the job, the same on all ranks --- */

/* The first line that is not the same in two texts of job_canonical. */
static void first_difference(
        const char *mine, const char *theirs, char *out, size_t out_bytes)
{
    while (*mine && *theirs) {
        size_t a = strcspn(mine, "\n"), b = strcspn(theirs, "\n");
        if (a != b || memcmp(mine, theirs, a) != 0)
            break;
        mine += a + 1;
        theirs += b + 1;
    }
    snprintf(
            out, out_bytes, "%.*s here, %.*s on rank 0",
            (int)(strcspn(mine, "\n") > 200 ? 200 : strcspn(mine, "\n")), mine,
            (int)(strcspn(theirs, "\n") > 200 ? 200 : strcspn(theirs, "\n")),
            theirs);
}

/* Rank 0's text to all; a rank whose own differs says where. */
static enum zd_status compare_jobs(struct comm *comm, const struct job *job)
{
    ZD_FREED char *mine = job_canonical(job), *other = NULL;
    char *first = mine, difference[640];
    int64_t bytes = (int64_t)strlen(mine) + 1;
    enum zd_status status = comm_broadcast(comm, &bytes, sizeof bytes, 0);
    if (status == ZD_OK && comm_rank(comm) != 0)
        first = other = zd_must(calloc(1, (size_t)bytes));
    ZD_THEN(status, comm_broadcast(comm, first, (size_t)bytes, 0));
    if (status == ZD_OK && strcmp(mine, first) != 0) {
        first_difference(mine, first, difference, sizeof difference);
        status =
                ZD_FAIL(ZD_ERR_CONFIG, "E0217",
                        "job files differ between ranks: %s", difference);
        zd_fail_where("%s", comm_host(comm));
    }
    return comm_agree(comm, status);
}

/* The lowest rank with problems in its job file prints them. */
static enum zd_status agree_on_job(
        struct comm *comm, const struct job *job, enum zd_status mine)
{
    int teller = comm_size(comm);
    ZD_FREED void *all = NULL;
    ZD_TRY(comm_gather_new(comm, &mine, sizeof mine, &all));
    const enum zd_status *statuses = all;
    for (int r = teller - 1; r >= 0; r--)
        teller = statuses[r] != ZD_OK ? r : teller;
    if (teller == comm_size(comm))
        return compare_jobs(comm, job);
    if (teller == comm_rank(comm))
        problems_print(job_problems(job), stderr);
    if (teller == comm_rank(comm) && teller != 0)
        fprintf(stderr, "  = note: on rank %d (%s); rank 0 has none\n", teller,
                comm_host(comm));
    return statuses[teller];
}

/* --- this rank --- */

static void configure_log(const struct train_job *job, int rank)
{
    struct zd_log_options log = {
            .level = job->log.level,
            .json = job->log.json == 1,
            .all_ranks = job->log.rank_logs == RANK_LOGS_STDOUT,
            .rank = rank};
    zd_log_configure(&log);
}

/* mpirun binds a rank to one core by default with one or two ranks: the rest of
 * the machine would idle. */
static void warn_about_binding(const struct train_job *job, struct comm *comm)
{
    int mask = device_affinity_cpus(), online = device_online_cpus();
    int fair = online / comm_local_size(comm);
    if (comm_local_rank(comm) != 0 || job->device.cpu_threads > 0 || mask > 1 ||
        fair <= 1)
        return;
    zd_log_warning(
            "rank %d may run on 1 of the %d cores of %s and computes "
            "with 1 thread, where %d per rank are there. mpirun binds "
            "each rank to one core by default; use:  mpirun --bind-to "
            "none ...",
            comm_rank(comm), online, comm_host(comm), fair);
}

/* Rank 0's: what is seen on the screen, and who answers on the socket. */
static enum zd_status start_telling(
        const struct cli_args *args, const struct job *job,
        struct report **report_out, struct control **control_out)
{
    char keys[256];
    ZD_TRY(cli_check_limits(args, job_options(job)));
    if (job_idle_keys(job, keys, sizeof keys))
        zd_log_info("without effect on the CPU: %s", keys);
    *report_out = report_create(job_options(job));
    return control_create(job, control_out);
}

/* --- a failure --- */

/* Read by the handler below alone; set before it is installed. */
static volatile sig_atomic_t ending_code;

/* May meet a thread that computes, which spoils its memory
 * (train/command/signals.c): nothing is read after it. */
static void end_now(int signal_number)
{
    (void)signal_number;
    _exit(ending_code);
}

static void end_within(unsigned seconds, enum zd_status status)
{
    ending_code = zd_exit_code(status);
    signal(SIGALRM, end_now);
    alarm(seconds);
}

/* This rank has reported its error: later ones, while it frees its memory, are
 * not reported.
 * goes_first: with a failed GPU, alone or as the one that tells for all. */
static bool has_told, goes_first;

/* The cause is on the screen before anything is given back: with a failed GPU
 * that may hang, and a peer's comm.timeout must not come first. */
static void tell_cause(struct comm *comm, enum zd_status status)
{
    const struct zd_error *error = zd_error_get();
    if (comm_size(comm) == 1 || status == ZD_ERR_PEER || error->status == ZD_OK)
        return;
    zd_fail_where("rank %d (%s)", comm_rank(comm), comm_host(comm));
    zd_error_print(stderr, error);
    has_told = true;
    goes_first = status == ZD_ERR_DEVICE;
    end_within(goes_first ? GIVE_UP_SECONDS : ENDING_SECONDS, status);
}

static enum zd_status train(
        const struct cli_args *args, struct comm *comm, const struct job *job)
{
    const struct train_job *options = job_options(job);
    struct report *report = NULL;
    struct control *control = NULL;
    comm_work(comm, WORK_COMMAND); /* what rank 0 tells others may be long */
    warn_about_binding(options, comm);
    /* before all data is read */
    enum zd_status status = cli_check_weights(options);
    if (comm_rank(comm) == 0 && status == ZD_OK)
        status = start_telling(args, job, &report, &control);
    status = comm_agree(comm, status);
    if (status == ZD_OK) {
        struct train_observer screen = report_observer(report);
        struct train_observer observer = control_observer(control, &screen);
        observer.failed = tell_cause;
        comm_work(comm, WORK_NONE);
        status = train_run(options, comm, &observer);
        comm_work(comm, WORK_COMMAND);
    }
    control_destroy(control, status);
    report_destroy(report);
    comm_work(comm, WORK_NONE);
    return status;
}

/* --- the ending --- */

/* A failure that could be told is on all ranks: they leave together. One that
 * could not (rank 0's disk is full in the middle of a step) leaves the others
 * waiting for this rank; then it goes alone, and mpirun ends them with its
 * code; at once where its GPU failed. */
static void leave(struct comm *comm, enum zd_status status)
{
    const struct zd_error *error = zd_error_get();
    bool is_alone = comm_size(comm) == 1;
    if (status == ZD_ERR_PEER && error->status != ZD_OK && !is_alone)
        sleep(SYMPTOM_SECONDS); /* let the rank that knows the cause report it
                                   first */
    if (!has_told)
        zd_error_print(stderr, error);
    zd_error_clear();
    if (goes_first) {
        fflush(stdout);
        _exit(zd_exit_code(status));
    }
    if (status != ZD_OK && !is_alone)
        end_within(ENDING_SECONDS, status);
    comm_destroy(comm);
    alarm(0);
}

enum zd_status command_run(struct cli_args *args)
{
    /* the files are read, then the ranks join, and the rest of the job is
     * checked for as many */
    struct job *job = cli_open_job(args);
    const struct comm_options options = job_comm_options(job);
    struct comm *comm;
    train_catch_signals();
    enum zd_status status = cli_join(args, &options, &comm);
    if (status != ZD_OK) {
        job_free(job);
        return status;
    }
    cli_configure_log(args, comm_rank(comm));

    /* ranks may have different command lines, and one may be refused */
    status = comm_agree(comm, ZD_OK);
    if (status == ZD_OK) {
        status = job_finish(job, comm_size(comm), JOB_PATHS_EXIST);
        status = agree_on_job(comm, job, status);
    }
    if (status == ZD_OK) {
        configure_log(job_options(job), comm_rank(comm));
        status = train(args, comm, job);
    }
    job_free(job);
    leave(comm, status);
    return status;
}

enum zd_status command_run_refused(
        const struct cli_args *args, enum zd_status status)
{
    struct comm_options options = train_job_default().comm;
    struct zd_error error = *zd_error_get();
    struct comm *comm;
    if (!comm_is_launched())
        return status;
    zd_error_clear();
    bool joins =
            comm_mpi_create(args->argc, args->argv, &options, &comm) == ZD_OK;
    zd_error_set(&error);
    if (!joins)
        return status;
    status = comm_agree(comm, status);
    leave(comm, status);
    return status;
}
