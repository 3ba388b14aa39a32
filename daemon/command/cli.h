/* cli.h - the command line of zerod; its tables are a struct cli_program, from
 * which parsing, --help and the reference pages come.
 *
 * Results go to stdout, everything else to stderr. */
#pragma once

#include "base/log.h"
#include "base/number/dtype.h"
#include "daemon/cli/program.h"
#include "daemon/job/job.h"

struct cli_args { /* what was typed; strings borrowed from argv */
    struct cli_line line;
    int *argc; /* as main has them, for MPI */
    char ***argv;
    const char *job, *out, *dtype, *model, *html;
    const char *base, *quantize;
    const char *format, *log_format, *resume;
    const char *max, *min, *allow, *write, *machine; /* of plan */
    const char *device_memory, *host_memory, *disk;
    const char *data, *data_name, *data_split, *from_deepspeed, *from_hf,
            *from_axolotl, *from_llamafactory, *from_torchtune; /* of init */
    struct cli_list sets, adapters, prompts;
    int64_t world, per_node, max_steps, stop_after, max_new_tokens, seed;
    double temperature, top_p, seconds;
    int64_t threads;
    int64_t count;
    bool all, print, json, quiet, double_quant, merge, verbose, no_progress,
            ids, chat;
    bool fit, force;
    bool list, full, lora, qlora;
};

extern const struct cli_program zerod_program;

/* The whole program; returns its exit code. */
int cli_main(int argc, char **argv);

/* --- for the commands --- */

typedef enum zd_status cli_command_fn(struct cli_args *args);
cli_command_fn command_run;
/* A command line was refused with `status` and its record: of many ranks one
 * reports it, and all end with the same status. */
enum zd_status command_run_refused(
        const struct cli_args *args, enum zd_status status);
cli_command_fn command_validate;
cli_command_fn command_plan;
cli_command_fn command_init;
cli_command_fn command_bench_calibrate;
cli_command_fn command_doctor;
cli_command_fn command_export;
cli_command_fn command_ckpt_ls;
cli_command_fn command_ckpt_show;
cli_command_fn command_ckpt_verify;
cli_command_fn command_merge;
cli_command_fn command_generate;
cli_command_fn command_data_inspect;
cli_command_fn command_completions;

/* --device-memory and --host-memory must not be 0, which in a job means all
 * there is. Warns of them, and of the limits of `job` (or NULL), where they are
 * of so few bytes. */
enum zd_status cli_check_limits(
        const struct cli_args *args, const struct train_job *job);
/* Before the job is read: device.backend = "auto" is that of the machine that
 * --machine names. */
void cli_assume_device(const struct cli_args *args);
/* After the GPU was opened: refuses a limit of device memory that is a share of
 * a GPU which is not here. */
enum zd_status cli_check_share(bool is_share, enum device_backend backend);
/* The headers of the weights that a start reads, if it cannot go on from a
 * checkpoint. */
enum zd_status cli_check_weights(const struct train_job *job);
/* The machine to plan for: --machine, else this one as measured (kept in
 * `here`), else the table of the backend. Warns about a calibration that
 * cannot be used. */
struct plan_machine;
struct plan_calibration;
enum zd_status cli_machine(
        const struct cli_args *args, enum device_backend backend,
        struct plan_calibration *here, const struct plan_machine **machine_out);
/* Opens the GPU that rank 0 would take, so that a plan knows what its driver
 * uses and what is free. NULL: the job uses none, or it cannot be opened now;
 * then the plan is as for another machine. */
struct device *command_open_gpu(const struct device_options *options);
/* `zerod plan` with --fit, --max, --min; a job is loaded, its GPU is open. */
enum zd_status command_plan_fit(
        const struct cli_args *args, const struct job *job);
enum zd_status command_plan_most(
        const struct cli_args *args, const struct job *job);

/* Joins the ranks as a run does. A process without a launcher does without MPI,
 * which would take half a second, write below /tmp and start a helper process.
 */
enum zd_status cli_join(
        const struct cli_args *args, const struct comm_options *options,
        struct comm **comm_out);
/* Print this rank's error, then leave: mpirun kills all ranks when the first
 * ends with a code, and the others may still have to tell. */
void cli_part(struct comm *comm);
const char *cli_job_path(const struct cli_args *args);
/* The files of the job named by --job or the operand, with all options that
 * override a key (job_open). */
struct job *cli_open_job(const struct cli_args *args);
/* The same, checked (job_finish), the problems printed (with --format json on
 * stdout too); then *job_out is NULL. Returns a status whose record, if any,
 * was printed: pass it up. */
enum zd_status cli_need_job(
        const struct cli_args *args, int world, enum job_paths paths,
        struct job **job_out);
/* Reads the job's data as a run would, all or the beginning. */
enum zd_status cli_check_data(
        const struct train_job *job, bool all, bool *is_part_out);
/* Refuses (73) to overwrite the file that `option` names. */
enum zd_status cli_check_new(const char *path, const char *option);
/* --format json: this thread's error record as one of the problems; it is kept
 * for stderr. */
void cli_print_record(const struct cli_args *args);
bool cli_wants_json(const struct cli_args *args);
/* How lines are logged before a job says so. `rank`: -1 before ranks are known.
 */
void cli_configure_log(const struct cli_args *args, int rank);
