/* check.c - what a table of contradictions cannot say: whether the model has
 * what the job asks of it. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "model/files/config.h"
#include "model/params.h"
#include "train/plan/plan.h"

#include <string.h>

/* --- [device] --- */

static void check_gpus(struct job *job)
{
    const char *gpus = job->options.device.gpus;
    if (!device_gpus_are_valid(gpus))
        job_refuse(
                job, "E0206", "device.gpus", "gpus = \"0,1\"",
                "gpus = \"%.80s\": must be \"auto\", or numbers with commas",
                gpus);
}

/* --- the model --- */

typedef enum zd_status cut_check(
        const struct train_job *job, const struct model_config *config,
        int world);

static void check_cut(
        struct job *job, const struct model_config *config, const char *name,
        cut_check *check)
{
    struct job_key *key = job_key(job, name);
    if (key->refused || check(&job->options, config, job->world) == ZD_OK)
        return;
    key->refused = strcmp(zd_error_get()->code, "E0224") == 0;
    if (key->refused)
        job_take_record(job, name);
    else
        zd_error_clear(); /* told where it stands */
}

static void check_slices(struct job *job, const struct model_config *config)
{
    check_cut(job, config, "parallel.tp_size", job_check_slices);
    if (!job_key(job, "parallel.tp_size")->refused)
        check_cut(job, config, "parallel.cp_comm_type", job_check_heads);
}

static void check_config(struct job *job, const struct model_config *config)
{
    const struct train_options *train = &job->options.train;
    int cutoff_len = job->options.data.cutoff_len;
    struct job_key *key = job_key(job, "data.cutoff_len");
    struct param_table table;
    if (!key->refused && !key->given && cutoff_len > config->max_positions) {
        job->options.data.cutoff_len = config->max_positions;
        key->derived = "the model's positions";
    } else if (!key->refused && cutoff_len > config->max_positions)
        job_refuse(
                job, "E0215", "data.cutoff_len",
                job_string(
                        job, "cutoff_len = %d in [data]%s",
                        config->max_positions,
                        config->rope_count ? ", or rope_scaling in [model]"
                                           : ""),
                "data.cutoff_len = %d is beyond the model's %d positions",
                cutoff_len, config->max_positions);
    if (param_table_build(config, train->freeze, train->freeze_count, &table)) {
        job_take_record(job, "train.freeze");
        return;
    }
    job_check_adapters(job, config, &table);
    check_slices(job, config);
    param_table_fini(&table);
}

static void check_model(struct job *job)
{
    const struct model_options *model = &job->options.model;
    struct model_config config;
    if (!!model->config == !!model->path ||
        (model->path && !fs_is_dir(model->path)))
        return;
    if (job_plan_config(&job->options, &config) == ZD_OK) {
        check_config(job, &config);
        model_config_fini(&config);
    } else if (model->config) {
        job_take_record(job, "model.config");
    } else {
        zd_error_clear(); /* told with the paths */
    }
}

void job_check(struct job *job)
{
    check_model(job); /* a tp_size that does not fit it is not told again */
    job_check_contradictions(job);
    job_check_optim(job);
    if (!job_key(job, "device.gpus")->refused)
        check_gpus(job);
}
