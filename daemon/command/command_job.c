/* command_job.c - what can be said about a job without starting it. */
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "data/inspect.h"
#include "train/text/text.h"
#include "train/train.h"

#include <inttypes.h>
#include <unistd.h>

static const char *job_path(const struct cli_args *args)
{
    return args->job ? args->job : args->line.operands[0];
}

enum zd_status command_validate(struct cli_args *args, int *argc, char ***argv)
{
    struct output output;
    struct job *job;
    ZD_TRY(cli_need_job(args, (int)args->world, JOB_PATHS_READ, &job));
    if (cli_wants_json(args)) {
        json_t *result = json_pack(
                "{s:b, s:s*, s:i, s:[]}", "valid", 1, "file", job_path(args),
                "errors", 0, "problems");
        json_t *all = job_json(job);
        if (args->print)
            json_object_update_missing(result, all);
        output_json(result);
        json_decref(all);
        json_decref(result);
    } else if (args->print) {
        job_print(job, output_begin(&output));
        output_end(&output);
    } else {
        fprintf(output_begin(&output), "%s: valid\n", job_path(args));
        output_end(&output);
    }
    job_free(job);
    return ZD_OK;
}

/* This thread's error record, which stays to be told on stderr. */
static void print_record(const struct cli_args *args)
{
    struct zd_error error = *zd_error_get();
    struct problems problems = {0};
    problem_take_record(&problems, (struct toml_place){0});
    cli_print_errors(args, problems_json(&problems));
    problems_fini(&problems);
    zd_error_set(&error);
}

/* The job's own limits may be those of another machine. */
static void warn_of_machine(const struct job_plan *plan)
{
    uint64_t here = job_machine_memory(plan->limits.local_size),
             takes = job_plan_memory(plan);
    if (takes > here)
        zd_log_warning(
                "a rank takes %.3f MiB of memory and this machine has %.3f MiB "
                "for it: a run here would be refused",
                (double)takes / (1 << 20), (double)here / (1 << 20));
}

/* Nodes are alike: what is planned for one rank is so for all. */
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

/* The GPU that rank 0 would take, opened: the plan then knows what its driver
 * takes of it and what is free. NULL: the job asks for none, or it cannot be
 * opened now, and is planned for like one that is elsewhere. */
static struct device *open_gpu(const struct device_options *options)
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

enum zd_status command_plan(struct cli_args *args, int *argc, char ***argv)
{
    struct job *job;
    struct job_plan plan;
    ZD_TRY(check_nodes(args));
    ZD_TRY(cli_need_job(args, (int)args->world, JOB_PATHS_IGNORED, &job));
    struct device *device = open_gpu(&job_options(job)->device);
    enum zd_status status = job_plan_build(
            job_options(job), (int)args->world, (int)args->per_node, NULL,
            &plan);
    if (status != ZD_OK && cli_wants_json(args))
        print_record(args);
    if (status == ZD_OK) {
        warn_of_machine(&plan);
        if (cli_wants_json(args)) {
            json_t *json = job_plan_json(&plan, NULL);
            output_json(json);
            json_decref(json);
        } else {
            struct output output;
            job_plan_print(&plan, output_begin(&output));
            output_end(&output);
        }
        job_plan_fini(&plan);
    }
    device_close(device);
    job_free(job);
    return status;
}

/* --- data inspect --- */

static enum zd_status show_samples(
        const struct cli_args *args, struct dataset *dataset,
        const struct text *text)
{
    struct inspect_view view = {
            .count = args->count,
            .ids = args->ids,
            .colour = output_has_colour(STDOUT_FILENO)};
    json_t *json;
    if (!cli_wants_json(args))
        return dataset_inspect(stdout, dataset, text->tokenizer, &view);
    ZD_TRY(dataset_inspect_json(dataset, text->tokenizer, &view, &json));
    output_json(json);
    json_decref(json);
    return ZD_OK;
}

static enum zd_status inspect(
        const struct cli_args *args, const struct train_job *options,
        const struct model_config *config, const struct text *text)
{
    struct dataset *dataset;
    struct dataset_request request = {
            .options = &options->data,
            .entries = options->data.train,
            .entry_count = options->data.train_count,
            .tokenizer = text->tokenizer,
            .eos = text->eos,
            .vocab_size = config->vocab_size,
            .data_seed = options->job.data_seed,
            .shuffle = options->data.shuffle,
            .to = options->data.eval_count ? 1 : 1 - options->data.val_split,
            .may_be_masked = true};
    ZD_TRY(dataset_prepare(&request));
    ZD_TRY(dataset_open(&request, &dataset));
    dataset_compare_template(dataset, &request);
    enum zd_status status = show_samples(args, dataset, text);
    dataset_close(dataset);
    return status;
}

static enum zd_status read_config(
        const struct model_options *model, struct model_config *config)
{
    if (model->config)
        return model_config_parse(
                model->config, "[model.config]", ZD_ERR_CONFIG, config);
    return model_config_read(model->path, config);
}

enum zd_status command_data_inspect(
        struct cli_args *args, int *argc, char ***argv)
{
    struct job *job;
    struct model_config config;
    struct text text;
    ZD_TRY(cli_need_job(args, 0, JOB_PATHS_EXIST, &job));
    const struct train_job *options = job_options(job);
    enum zd_status status = read_config(&options->model, &config);
    if (status == ZD_OK) {
        status = text_open(options, &config, &text);
        if (status == ZD_OK) {
            status = inspect(args, options, &config, &text);
            text_close(&text);
        }
        model_config_fini(&config);
    }
    job_free(job);
    return status;
}
