/* settle.c - values that follow from others. */
#include "daemon/job/job_internal.h"

#include "base/words.h"

#include <ctype.h>
#include <string.h>

/* The file's name without folder and ending, with what a name may not hold
 * replaced, because it was not chosen as one. */
static const char *name_of_file(struct job *job, const char *path)
{
    const char *slash = strrchr(path, '/');
    char stem[49];
    ZD_PRINT(stem, "%s", slash ? slash + 1 : path);
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
        job_key(job, "job.name")->derived = "from the file's name";
    }
    if (!options->output_dir || !options->output_dir[0]) {
        options->output_dir = job_string(job, "out/%s", options->name);
        job_key(job, "job.output_dir")->derived = "from job.name";
    }
    if (!options->run_name)
        options->run_name = "";
    if (!job_key(job, "job.data_seed")->given) {
        options->data_seed = options->seed;
        job_key(job, "job.data_seed")->derived = "from job.seed";
    }
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
    if (G % unit)
        job_refuse(
                job, "E0211", "train.global_batch_size",
                job_string(
                        job, "the nearest that does: global_batch_size = %lld",
                        (long long)(G < unit ? unit : G / unit * unit)),
                "batch sizes do not agree: no number of ranks makes %lld of "
                "%lld per rank",
                (long long)G, (long long)unit);
}

static void settle_batch(struct job *job, int samplers)
{
    static const char *const keys[] = {
            "train.global_batch_size", "train.gradient_accumulation_steps",
            "train.per_device_train_batch_size"};
    int told = 2; /* the first that is given */
    for (int i = 2; i >= 0; i--) {
        if (job_key(job, keys[i])->refused)
            return;
        told = job_key(job, keys[i])->given ? i : told;
    }
    if (!samplers)
        settle_any_world(job);
    else if (
            train_resolve_batch(
                    &job->options.train, samplers, job->world / samplers,
                    &job->per_device, &job->accumulation,
                    &job->global_batch) != ZD_OK)
        job_take_record(job, keys[told]);
}

/* How many see samples of their own; 0: not known, or the sizes are refused. */
static int settle_mesh(struct job *job)
{
    static const char *const keys[] = {
            "parallel.dp_shard_size", "parallel.dp_replicate_size",
            "parallel.tp_size", "parallel.cp_size"};
    const struct mesh_sizes sizes = job->options.parallel;
    struct mesh mesh;
    for (int i = 0; i < 4; i++)
        if (!job->world || job_key(job, keys[i])->refused)
            return 0;
    if (mesh_cut(sizes, job->world, &mesh) == ZD_OK)
        return mesh_samples(mesh, 0).size;
    job_take_record(
            job, keys[job->world % sizes.cp              ? 3
                      : job->world / sizes.cp % sizes.tp ? 2
                                                         : sizes.shard <= 0]);
    for (int i = 0; i < 4; i++) /* one of them changes: no more about them */
        job_key(job, keys[i])->refused = true;
    return 0;
}

/* Keys that mean nothing while another is as it is: comments of --print, and a
 * problem where they are given. nvme_path, [aio] and chunk_bytes (of paged
 * states too) tell of the machine and may stand in a job that does not use
 * them. */
static void settle_idle(struct job *job)
{
    const struct train_job *o = &job->options;
    bool is_off = o->offload.optimizer == OFFLOAD_NONE;
    const struct {
        bool is_idle;
        const char *section, *keys;
        const char *of; /* whose value makes them idle */
        const char *unused, *help, *what;
    } rows[] = {
            {o->train.dtype != DTYPE_FP16, "train.fp16",
             "loss_scale initial_scale_power loss_scale_window hysteresis "
             "min_loss_scale",
             "train.dtype", "only with dtype = \"fp16\"",
             "dtype = \"fp16\" in [train], or remove [train.fp16]",
             job_string(
                     job,
                     "train.fp16.%%s is for train.dtype = \"fp16\", which is "
                     "\"%s\"",
                     dtype_name(o->train.dtype))},
            {is_off, "offload",
             "threads clipping accumulate undo_memory device_update",
             "offload.optimizer", "not used without offload.optimizer",
             "offload.optimizer = \"cpu\", or remove this line",
             "`%s` has no effect while offload.optimizer is \"none\""},
            {!is_off && o->offload.clipping != OFFLOAD_CLIP_UNDO, "offload",
             "undo_memory", "offload.clipping", "only with clipping = \"undo\"",
             "clipping = \"undo\" in [offload], or remove this line",
             "`%s` has no effect while offload.clipping is \"wait\""}};
    char key[SCHEMA_NAME_MAX];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *list = rows[i].is_idle ? rows[i].keys : NULL;
             words_next(&list, " ", key, sizeof key);)
            job_idle(
                    job, job_string(job, "%s.%s", rows[i].section, key),
                    rows[i].unused, !job_key(job, rows[i].of)->refused,
                    rows[i].help, job_string(job, rows[i].what, key));
}

void job_settle(struct job *job)
{
    struct model_options *model = &job->options.model;
    settle_names(job, job->path);
    if (model->config && !job_key(job, "model.init")->given) {
        model->init = MODEL_RANDOM;
        job_key(job, "model.init")->derived = "from [model.config]";
    }
    job_settle_lora(job);
    job_settle_optim(job);
    settle_idle(job);
    settle_batch(job, settle_mesh(job));
}
