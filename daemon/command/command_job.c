/* command_job.c - what can be said about a job without starting it. */
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "data/inspect.h"
#include "train/plan/plan.h"
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
    enum zd_status status = dataset_compare_template(dataset, &request);
    if (status == ZD_OK)
        status = show_samples(args, dataset, text);
    dataset_close(dataset);
    return status;
}

static enum zd_status read_config(
        const struct model_options *model, struct model_config *config)
{
    if (model->config)
        return model_config_parse(
                model->config, "[model.config]", ZD_ERR_CONFIG, config);
    return model_config_read_stored(model->path, config);
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
        status = job_plan_vocabulary(options, &config);
        if (status == ZD_OK)
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
