/* command_job.c - what can be said about a job without starting it. */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/cli/output.h"
#include "daemon/command/cli.h"
#include "data/inspect.h"
#include "model/files/config.h"
#include "model/files/weights_hf.h"
#include "train/checkpoint/checkpoint.h"
#include "train/plan/plan.h"
#include "train/text/text.h"

#include <stdlib.h>
#include <unistd.h>

/* The job's tokenizer, and the configuration whose vocabulary it must fit. */
static enum zd_status open_text(
        const struct train_job *job, struct model_config *config,
        struct text *text)
{
    ZD_TRY(job_plan_config(job, config));
    ZD_TRY(job_plan_vocabulary(job, config));
    return text_open(job, config, text);
}

/* --- validate --- */

static enum zd_status check_lists(
        const struct train_job *job, const struct model_config *config,
        const struct text *text, bool all, bool *is_part_out)
{
    bool evaluates = job->eval.eval_strategy != EVAL_NO &&
                     (job->data.eval_count > 0 || job->data.val_split > 0);
    for (int eval = 0; eval <= evaluates; eval++) {
        struct dataset *dataset;
        struct dataset_request request =
                text_request(job, text, config->vocab_size, eval);
        request.depth = all ? DATA_CHECK : DATA_LOOK;
        ZD_TRY(dataset_open(&request, &dataset));
        *is_part_out |= dataset_summary(dataset).is_part;
        if (!eval)
            dataset_tell_template(dataset, &request, false);
        dataset_close(dataset);
    }
    return ZD_OK;
}

enum zd_status cli_check_data(
        const struct train_job *job, bool all, bool *is_part_out)
{
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    ZD_SCOPED(text_close) struct text text = {0};
    *is_part_out = false;
    ZD_TRY(open_text(job, &config, &text));
    model_config_warn(&config);
    return check_lists(job, &config, &text, all, is_part_out);
}

/* May a start go on from a checkpoint, which has all weights but a base's? */
static enum zd_status may_resume(const struct train_job *job, bool *may_out)
{
    const char *dir = job->job.output_dir;
    int64_t *steps = NULL;
    int count = job->run.resume == RESUME_PATH;
    enum zd_status status = ZD_OK;
    *may_out = false;
    if (job->lora.enabled || job->run.resume == RESUME_NEVER)
        return ZD_OK;
    if (!count && fs_is_dir(dir))
        status = checkpoint_list(dir, &steps, &count);
    free(steps);
    *may_out = count > 0;
    return status;
}

static enum zd_status open_weights(const char *dir)
{
    struct hf_files files;
    ZD_TRY(hf_files_open(dir, &files));
    hf_files_close(&files);
    return ZD_OK;
}

enum zd_status cli_check_weights(const struct train_job *job)
{
    const char *dir = train_stored_base(job);
    bool resumes;
    ZD_TRY(may_resume(job, &resumes));
    return dir && !resumes ? open_weights(dir) : ZD_OK;
}

/* The headers of what a run reads whole. */
static enum zd_status check_weights(const struct train_job *job)
{
    const char *dir = train_stored_base(job);
    bool resumes;
    if (!dir)
        return ZD_OK;
    if (may_resume(job, &resumes) != ZD_OK)
        zd_error_clear();
    if (!weights_hf_are_there(dir) && resumes) {
        zd_log_warning(
                "%s has no model.safetensors: only a start that goes on from a "
                "checkpoint can do without",
                dir);
        return ZD_OK;
    }
    return open_weights(dir);
}

static void print_valid(
        const struct cli_args *args, const struct job *job, bool is_part)
{
    if (cli_wants_json(args)) {
        json_auto_t *result = json_pack(
                "{s:b, s:s*, s:i, s:[], s:b}", "valid", 1, "file",
                cli_job_path(args), "errors", 0, "problems", "all_data",
                !is_part);
        json_auto_t *all = job_json(job);
        if (args->print)
            json_object_update_missing(result, all);
        output_json(result);
        return;
    }
    OUTPUT(out);
    if (args->print)
        job_print(job, out);
    else if (is_part)
        fprintf(out,
                "%s: valid (of the data the first %d records were read, or %d "
                "tokens; --all reads all)\n",
                cli_job_path(args), CHECKED_RECORDS, CHECKED_TOKENS);
    else
        fprintf(out, "%s: valid\n", cli_job_path(args));
}

enum zd_status command_validate(struct cli_args *args)
{
    struct job *job;
    bool is_part;
    ZD_TRY(cli_need_job(args, (int)args->world, JOB_PATHS_EXIST, &job));
    args->quiet = !args->all; /* what takes long tells how far it is */
    cli_configure_log(args, -1);
    enum zd_status status = cli_check_limits(args, job_options(job));
    ZD_THEN(status, cli_check_data(job_options(job), args->all, &is_part));
    ZD_THEN(status, check_weights(job_options(job)));
    if (status == ZD_OK)
        print_valid(args, job, is_part);
    else if (cli_wants_json(args))
        cli_print_record(args);
    job_free(job);
    return status;
}

/* --- data inspect --- */

static enum zd_status write_page(const char *path, const json_t *json)
{
    ZD_FREED char *page = NULL;
    size_t bytes;
    FILE *out = text_stream_open(&page, &bytes);
    inspect_html(out, json);
    fclose(out);
    return fs_write_file(path, page, bytes);
}

static enum zd_status show_samples(
        const struct cli_args *args, struct dataset *dataset,
        const struct text *text)
{
    struct inspect_view view = {
            .count = args->count,
            .ids = args->ids,
            .color = output_has_color(STDOUT_FILENO)};
    json_auto_t *json = NULL;
    if (!cli_wants_json(args) && !args->html)
        return dataset_inspect(stdout, dataset, text->tokenizer, &view);
    ZD_TRY(dataset_inspect_json(dataset, text->tokenizer, &view, &json));
    if (cli_wants_json(args))
        output_json(json);
    return args->html ? write_page(args->html, json) : ZD_OK;
}

static enum zd_status inspect(
        const struct cli_args *args, const struct train_job *options,
        const struct model_config *config, const struct text *text)
{
    struct dataset *dataset;
    struct dataset_request request =
            text_request(options, text, config->vocab_size, false);
    request.may_be_masked = true;
    request.depth = DATA_CHECK;
    ZD_TRY(dataset_open(&request, &dataset));
    dataset_tell_template(dataset, &request, false);
    enum zd_status status = show_samples(args, dataset, text);
    dataset_close(dataset);
    return status;
}

enum zd_status command_data_inspect(struct cli_args *args)
{
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    ZD_SCOPED(text_close) struct text text = {0};
    struct job *job;
    ZD_TRY(cli_need_job(args, 0, JOB_PATHS_EXIST, &job));
    enum zd_status status = open_text(job_options(job), &config, &text);
    ZD_THEN(status, inspect(args, job_options(job), &config, &text));
    job_free(job);
    return status;
}
