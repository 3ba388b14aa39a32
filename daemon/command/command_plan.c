/* command_plan.c - what a job takes, what would fit, and how much of one thing
 * would. */
#include "base/units.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "model/files/config.h"
#include "train/plan/advice.h"
#include "train/plan/calibration.h"
#include "train/train.h"

#include <inttypes.h>

/* The job's limits may be those of a larger machine. */
static void tell_limits(
        const struct cli_args *args, const struct train_job *job)
{
    const struct device_options *device = &job->device;
    const struct device_facts facts = device_facts();
    int world = args->world ? (int)args->world : 1;
    uint64_t host = job_machine_memory(
            plan_local_size(job, world, (int)args->per_node));
    bool on_gpu = device_resolve(device->backend) == DEVICE_CUDA;
    const struct {
        const char *key;
        uint64_t limit, has;
    } limits[] = {
            {"device.memory_limit", device->memory_limit,
             on_gpu ? facts.total_bytes : host},
            {"device.host_memory_limit", device->host_memory_limit, host}};
    char limit[UNITS_TEXT], has[UNITS_TEXT];
    if (on_gpu && facts.backend != DEVICE_CUDA)
        return; /* planned for another machine */
    for (int i = 0; i < 2; i++)
        if (limits[i].limit > limits[i].has)
            zd_log_info(
                    "%s is %s, and this machine has %s for each rank: a run "
                    "here can take no more",
                    limits[i].key, units_bytes(limits[i].limit, limit),
                    units_bytes(limits[i].has, has));
}

static void warn_of_machine(const struct job_plan *plan)
{
    uint64_t here = job_machine_memory(plan->local_size),
             takes = job_plan_memory(plan);
    if (takes > here)
        zd_log_warning(
                "a rank takes %.3f MiB of memory and this machine has %.3f MiB "
                "for it: a run here would be refused",
                units_mib(takes), units_mib(here));
}

/* All nodes have the same number of ranks, so one plan serves for all. */
static enum zd_status check_nodes(const struct cli_args *args)
{
    int64_t k = args->per_node;
    if (k == 0 || args->world % k == 0)
        return ZD_OK;
    return ZD_FAIL(
            ZD_ERR_USAGE, "E0101",
            k > args->world ? "--per-node %" PRId64 " is more than the %" PRId64
                              " of --world"
                            : "--per-node %" PRId64
                              " does not divide the %" PRId64 " of --world",
            k, args->world);
}

struct device *command_open_gpu(const struct device_options *options)
{
    struct device *device = NULL;
    int place;
    if (device_resolve(options->backend) != DEVICE_CUDA ||
        device_gpu_count(NULL) == 0)
        return NULL;
    enum zd_status status = device_place(options, 0, &place);
    if (status == ZD_OK)
        status = device_open(DEVICE_CUDA, place, 1, &device);
    if (status == ZD_OK)
        status = device_share(device, 1);
    if (status != ZD_OK) {
        zd_log_warning(
                "the plan is for a GPU elsewhere: %s", zd_error_get()->what);
        zd_error_clear();
        device_close(device);
        return NULL;
    }
    device_use(device);
    return device;
}

static void tell(
        const struct cli_args *args, const struct train_job *job,
        const struct job_plan *plan, const struct plan_advice *advice,
        const struct plan_machine *machine)
{
    struct output output;
    if (cli_wants_json(args)) {
        json_t *json = job_plan_json(plan, NULL);
        json_object_set_new(
                json, "predicted", plan_advice_json(advice, machine));
        json_object_set_new(json, "phases", plan_peaks_json(job, plan));
        output_json(json);
        json_decref(json);
        return;
    }
    FILE *stream = output_begin(&output);
    job_plan_print(plan, stream);
    plan_peaks_print(job, plan, stream);
    plan_advice_print(advice, plan, machine, stream);
    output_end(&output);
}

static enum zd_status plan_one(
        const struct cli_args *args, const struct job *job)
{
    const struct train_job *options = job_options(job);
    int per_node = (int)args->per_node;
    struct job_plan plan;
    struct plan_advice advice;
    struct plan_calibration here;
    const struct plan_machine *machine;
    ZD_TRY(job_plan_build(options, (int)args->world, per_node, NULL, &plan));
    warn_of_machine(&plan);
    model_config_warn(&plan.config);
    enum zd_status status = cli_machine(args, job, &here, &machine);
    if (status == ZD_OK)
        status = plan_advise(options, &plan, machine, per_node, &advice);
    if (status == ZD_OK)
        tell(args, options, &plan, &advice, machine);
    job_plan_fini(&plan);
    return status;
}

enum zd_status command_plan(struct cli_args *args, int *argc, char ***argv)
{
    struct job *job;
    if (!args->world && !args->min) {
        args->world = 1;
        zd_log_info("planned for one rank; --world N plans for N");
    }
    ZD_TRY(check_nodes(args));
    ZD_TRY(cli_check_limits(args));
    ZD_TRY(cli_need_job(args, (int)args->world, JOB_PATHS_IGNORED, &job));
    struct device *device = command_open_gpu(&job_options(job)->device);
    tell_limits(args, job_options(job));
    enum zd_status status = args->max || args->min
                                    ? command_plan_most(args, job)
                            : args->fit ? command_plan_fit(args, job)
                                        : plan_one(args, job);
    if (status != ZD_OK && cli_wants_json(args))
        cli_print_record(args);
    device_close(device);
    job_free(job);
    return status;
}
