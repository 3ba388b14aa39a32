#include "daemon/command/cli.h"

#include "base/file/fs.h"
#include "base/words.h"
#include "daemon/cli/complete.h"
#include "daemon/cli/output.h"
#include "train/plan/machine.h"

#include <string.h>

bool cli_wants_json(const struct cli_args *args)
{
    return args->json || (args->format && strcmp(args->format, "json") == 0);
}

void cli_configure_log(const struct cli_args *args, int rank)
{
    const struct zd_log_options log = {
            .level = args->quiet     ? ZD_LOG_WARNING
                     : args->verbose ? ZD_LOG_DEBUG
                                     : ZD_LOG_INFO,
            .json = args->log_format && strcmp(args->log_format, "json") == 0,
            .rank = rank};
    zd_log_configure(&log);
}

enum zd_status cli_join(
        const struct cli_args *args, const struct comm_options *options,
        struct comm **comm_out)
{
    if (options->backend == COMM_MPI || comm_is_launched())
        return comm_mpi_create(args->argc, args->argv, options, comm_out);
    return comm_local_create(1, options, comm_out);
}

void cli_part(struct comm *comm)
{
    zd_error_print(stderr, zd_error_get());
    zd_error_clear();
    comm_destroy(comm);
}

/* --- the job and what overrides it --- */

const char *cli_job_path(const struct cli_args *args)
{
    return args->job ? args->job : args->line.operands[0];
}

enum { FEW_BYTES = 4096 }; /* no job fits in as many */

enum zd_status cli_check_limits(
        const struct cli_args *args, const struct train_job *job)
{
    const struct {
        const char *option, *value, *key;
        uint64_t bytes;
    } limits[] = {
            {"--device-memory", args->device_memory, "device.memory_limit",
             job ? job->device.memory_limit : 0},
            {"--host-memory", args->host_memory, "device.host_memory_limit",
             job ? job->device.host_memory_limit : 0}};
    for (int i = 0; i < 2; i++) {
        const char *value = limits[i].value, *option = limits[i].option;
        double bytes = (double)limits[i].bytes;
        if (value && (!words_size(value, &bytes) || bytes < 0))
            continue; /* the job's reader refuses what is not a size */
        if (value && bytes < 1)
            return ZD_FAIL(
                    ZD_ERR_CONFIG, "E0206",
                    "%s %.60s: not a size of at least one byte, like 24GiB; "
                    "the default is all that is available",
                    option, value);
        if (bytes < 1 || bytes >= FEW_BYTES)
            continue;
        if (!value)
            zd_log_warning(
                    "%s is %d bytes: write a size like \"24GiB\"",
                    limits[i].key, (int)bytes);
        else if (!value[strspn(value, "0123456789.")])
            zd_log_warning(
                    "%s %.60s is so many bytes; did you mean %.60sGiB?", option,
                    value, value);
    }
    return ZD_OK;
}

void cli_assume_device(const struct cli_args *args)
{
    const struct plan_machine *machine =
            args->machine ? plan_machine_find(args->machine) : NULL;
    if (machine)
        device_assume(machine->gpu ? DEVICE_CUDA : DEVICE_CPU);
}

enum zd_status cli_check_share(bool is_share, enum device_backend backend)
{
    bool is_known = device_resolve(backend) == DEVICE_CPU ||
                    device_facts().backend == DEVICE_CUDA;
    if (!is_share || is_known)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0213",
            "device.memory_limit is a share of the memory of a GPU that is not "
            "here");
    return zd_fail_help("give a size, like --device-memory 24GiB");
}

struct job *cli_open_job(const struct cli_args *args)
{
    struct job_override overrides[CLI_LIST_MAX + 10];
    char steps[24], stop[24];
    int count = 0;

    for (int i = 0; i < args->sets.count; i++)
        overrides[count++] =
                (struct job_override){NULL, args->sets.items[i], "--set"};
    ZD_PRINT(steps, "%lld", (long long)args->max_steps);
    ZD_PRINT(stop, "%lld", (long long)args->stop_after);
    const struct job_override options[] = {
            {"run.resume", args->resume, "--resume", true},
            {"train.max_steps", args->max_steps >= 0 ? steps : NULL,
             "--max-steps", false},
            {"run.stop_after", args->stop_after >= 0 ? stop : NULL,
             "--stop-after", false},
            {"device.memory_limit", args->device_memory, "--device-memory",
             true},
            {"device.host_memory_limit", args->host_memory, "--host-memory",
             true},
            {"log.level",
             args->quiet     ? "warning"
             : args->verbose ? "debug"
                             : NULL,
             args->quiet ? "-q" : "-v", true},
            {"log.format", args->log_format, "--log-format", true},
            {"log.progress", args->no_progress ? "none" : NULL, "--no-progress",
             true}};
    enum { OPTIONS = sizeof options / sizeof options[0] };
    for (int i = 0; i < OPTIONS; i++)
        if (options[i].value)
            overrides[count++] = options[i];
    struct job_request request = {
            .path = cli_job_path(args),
            .overrides = overrides,
            .override_count = count,
            .force = args->force};
    return job_open(&request);
}

enum zd_status cli_check_new(const char *path, const char *option)
{
    if (!fs_exists(path))
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CREATE, "E0223", "%.400s already exists", path);
    return zd_fail_help("remove it, or name another file with %s", option);
}

/* --format json of a job that is refused: {"valid": false, "file", "errors",
 * "problems"} on stdout. Takes the reference to the array of problems_json. */
static void print_errors(const struct cli_args *args, json_t *problems)
{
    json_auto_t *result = json_pack(
            "{s:b, s:s, s:i, s:o}", "valid", 0, "file", cli_job_path(args),
            "errors", (int)json_array_size(problems), "problems", problems);
    output_json(result);
}

void cli_print_record(const struct cli_args *args)
{
    struct zd_error error = *zd_error_get();
    struct problems problems = {0};
    problem_take_record(&problems, (struct toml_place){0});
    print_errors(args, problems_json(&problems));
    problems_fini(&problems);
    zd_error_set(&error);
}

enum zd_status cli_need_job(
        const struct cli_args *args, int world, enum job_paths paths,
        struct job **job_out)
{
    *job_out = cli_open_job(args);
    enum zd_status status = job_finish(*job_out, world, paths);
    if (status != ZD_OK) {
        problems_print(job_problems(*job_out), stderr);
        if (cli_wants_json(args))
            print_errors(args, problems_json(job_problems(*job_out)));
        job_free(*job_out);
        *job_out = NULL;
    }
    return status;
}

/* --- the machine that a job is planned for --- */

static const char make_it[] = "zerod bench calibrate measures this machine";

enum zd_status cli_machine(
        const struct cli_args *args, enum device_backend backend,
        struct plan_calibration *here, const struct plan_machine **machine_out)
{
    const char *name = args->machine;
    char why[400];
    bool wants_here = !name || strcmp(name, "here") == 0;
    backend = device_resolve(backend);
    *machine_out = wants_here ? calibration_find(backend, here, why)
                              : plan_machine_find(name);
    if (!wants_here || *machine_out)
        return ZD_OK;
    *machine_out = plan_machine_default(backend);
    if (why[0])
        zd_log_warning("the calibration is not used: %s; %s", why, make_it);
    if (!name)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_NO_INPUT, "E0609",
            "--machine here: this machine has not been measured");
    return zd_fail_help("%s", make_it);
}

/* --- completions --- */

enum zd_status command_completions(struct cli_args *args)
{
    return complete_print_script("zerod", args->line.operands[0], stdout);
}
