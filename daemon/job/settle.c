/* settle.c - values that follow from others. */
#include "daemon/job/job_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The file's name without folder and ending, with what a name may not hold
 * replaced, because it was not chosen as one. */
static const char *name_of_file(struct job *job, const char *path)
{
    const char *slash = strrchr(path, '/');
    char stem[49];
    snprintf(stem, sizeof stem, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem)
        *dot = '\0';
    for (char *c = stem; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '-';
    if (strspn(stem, ".") == strlen(stem))
        return "job";
    return job_string(job, "%s", stem);
}

static void settle_names(struct job *job, const char *path)
{
    struct job_options *options = &job->options.job;
    if (!options->name || !options->name[0]) {
        options->name = name_of_file(job, path);
        job_derive(job, "job", "name", "from the file's name");
    }
    if (!options->output_dir || !options->output_dir[0]) {
        options->output_dir = job_string(job, "out/%s", options->name);
        job_derive(job, "job", "output_dir", "from job.name");
    }
    if (!options->run_name)
        options->run_name = "";
    if (!job_is_given(job, "job", "data_seed")) {
        options->data_seed = options->seed;
        job_derive(job, "job", "data_seed", "from job.seed");
    }
}

static void tell_batch(struct job *job)
{
    static const char *const names[] = {
            "global_batch_size", "gradient_accumulation_steps",
            "per_device_train_batch_size"};
    struct toml_place place = {0};
    for (int i = 0; i < 3 && !place.source; i++)
        if (job_is_given(job, "train", names[i]))
            place = job_place(job, "train", names[i]);
    problem_take_record(&job->problems, place);
}

/* Without a number of ranks: what can be no batch at any. */
static void settle_any_world(struct job *job)
{
    const struct train_options *train = &job->options.train;
    int64_t B = train->per_device_train_batch_size;
    int64_t A = train->gradient_accumulation_steps;
    int64_t G = train->global_batch_size;
    int64_t unit = (B ? B : 1) * (A ? A : 1);
    job->accumulation = (int)(A || (G && B) ? A : 1);
    job->per_device = (int)(B || G ? B : 4);
    job->global_batch = G;
    if (G % unit) {
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0211",
                job_place(job, "train", "global_batch_size"), NULL,
                "batch sizes do not agree: no number of ranks makes %lld of "
                "%lld per rank",
                (long long)G, (long long)unit);
        problem_help(
                &job->problems,
                "the nearest that does: "
                "global_batch_size = %lld",
                (long long)(G < unit ? unit : G / unit * unit));
    }
}

static void settle_batch(struct job *job)
{
    if (!job_is_sound(job, "train", "global_batch_size") ||
        !job_is_sound(job, "train", "gradient_accumulation_steps") ||
        !job_is_sound(job, "train", "per_device_train_batch_size"))
        return;
    if (!job->world) {
        settle_any_world(job);
        return;
    }
    enum zd_status status = train_resolve_batch(
            &job->options.train, job->world, &job->per_device,
            &job->accumulation, &job->global_batch);
    if (status != ZD_OK)
        tell_batch(job);
}

/* Keys that mean nothing while another is as it is: comments of --print, and a
 * problem where they are given. nvme_path, [aio] and chunk_bytes (of paged
 * states too) tell of the machine and may stand in a job that does not use
 * them. */
static void settle_idle(struct job *job)
{
    static const char *const fp16[] = {
            "loss_scale", "initial_scale_power", "loss_scale_window",
            "hysteresis", "min_loss_scale"};
    static const char *const offload[] = {
            "threads", "clipping", "accumulate", "pin_memory"};
    const struct train_job *o = &job->options;
    const char *dtype = dtype_name(o->train.dtype);
    for (int i = 0; i < 5 && o->train.dtype != DTYPE_FP16; i++)
        job_idle(
                job, "train.fp16", fp16[i], "only with dtype = \"fp16\"",
                job_string(
                        job,
                        "train.fp16.%s is for train.dtype = \"fp16\", which is "
                        "\"%s\"",
                        fp16[i], dtype),
                "dtype = \"fp16\" in [train], or remove [train.fp16]",
                job_is_sound(job, "train", "dtype"));
    for (int i = 0; i < 4 && o->offload.optimizer == OFFLOAD_NONE; i++)
        job_idle(
                job, "offload", offload[i],
                "not used without offload.optimizer",
                job_string(
                        job,
                        "`%s` has no effect while offload.optimizer is "
                        "\"none\"",
                        offload[i]),
                "offload.optimizer = \"cpu\", or remove this line",
                job_is_sound(job, "offload", "optimizer"));
}

void job_settle(struct job *job)
{
    struct model_options *model = &job->options.model;
    settle_names(job, job->path);
    if (model->config && !job_is_given(job, "model", "init")) {
        model->init = MODEL_RANDOM;
        job_derive(job, "model", "init", "from [model.config]");
    }
    job->options.comm.round_robin = job->options.zero.round_robin_gradients;
    job_settle_lora(job);
    job_settle_optim(job);
    settle_idle(job);
    settle_batch(job);
}
