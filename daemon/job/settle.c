/* settle.c - values that follow from others. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "base/words.h"
#include "model/adapters/peft.h"
#include "optim/optimizers.h"

#include <ctype.h>
#include <string.h>

/* --- [optim] --- */

/* A hyper-parameter that was not given takes the optimizer's own default. */
static void settle_params(struct job *job)
{
    struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    for (int i = 0; i < OPTIM_PARAMS; i++) {
        const char *key = optim_param_key((enum optim_param)i);
        const char *name = job_string(job, "optim.%s", key);
        if (optimizer->values[i] != 0 && !job_key(job, name)->given) {
            *optim_param_value(optim, (enum optim_param)i) =
                    optimizer->values[i];
            job_key(job, name)->derived = "from optim.name";
        }
        if (!optimizer->reads[i])
            job_idle(
                    job, name,
                    job_string(job, "not used by %s", optimizer->name),
                    !job_key(job, "optim.name")->refused, "remove this line",
                    job_string(
                            job, "`%s` has no effect with optim.name = \"%s\"",
                            key, optimizer->name));
    }
}

static void settle_optim(struct job *job)
{
    struct train_job *options = &job->options;
    struct optim_options *optim = &options->optim;
    struct job_key *key = job_key(job, "optim.state_dtype");
    const struct toml_node *name = job_key(job, "optim.name")->given;
    if (name && name->kind == TOML_STRING)
        options->optimizer = name->string;
    job->named_state = optim->state_type;
    options->names_states = key->given && !key->refused;
    if (options->names_states)
        optim->state_type = options->state_dtype;
    else if (name)
        key->derived = "from optim.name";
    options->state_dtype = optim->state_type;
    settle_params(job);
}

/* --- [lora] --- */

/* Without adapters. Keys of a section that says neither yes nor no: the whole
 * model would train, which is hardly what was meant; the first is told, but
 * quantize_base, of which contradictions.c says more. */
static void leave_out(struct job *job)
{
    bool may_tell = !job_key(job, "lora.enabled")->given &&
                    job->options.lora.quantize_base == LORA_BASE_NONE;
    for (int i = 0; i < schema_count; i++) {
        const char *key = schema_table[i].name;
        if (strcmp(schema_table[i].section, "lora") != 0 ||
            !strcmp(key, "enabled") || !strcmp(key, "path"))
            continue;
        bool is_told = may_tell && strcmp(key, "quantize_base") != 0;
        may_tell = may_tell && !(is_told && job->keys[i].given);
        job_idle(
                job, job_string(job, "lora.%s", key),
                "only with enabled = true", is_told, "enabled = true in [lora]",
                job_string(
                        job,
                        "lora.%s without adapters: lora.enabled is not given",
                        key));
    }
}

/* What lora.path says is told with the model. */
static void read_adapter(struct job *job)
{
    struct peft_config adapter;
    if (!job->options.lora.path || !fs_exists(job->options.lora.path))
        return;
    if (lora_config(&job->options.lora, &adapter) != ZD_OK) {
        zd_error_clear();
        return;
    }
    job->adapter = json_incref(adapter.json);
    peft_config_fini(&adapter);
}

static void settle_lora(struct job *job)
{
    struct lora_options *lora = &job->options.lora;
    struct checkpoint_options *checkpoint = &job->options.checkpoint;
    lora->given = job_given_json(job);
    lora->gives_quantize_base =
            job_key(job, "lora.quantize_base")->given != NULL;
    lora->gives_double_quant = job_key(job, "lora.double_quant")->given != NULL;
    if (lora->path && !job_key(job, "lora.enabled")->given) {
        lora->enabled = true;
        job_key(job, "lora.enabled")->derived = "from lora.path";
    }
    if (!lora->enabled) {
        leave_out(job);
        return;
    }
    if (!lora->gives_double_quant && lora->quantize_base != LORA_BASE_NF4 &&
        lora->quantize_base != LORA_BASE_FP4)
        job_key(job, "lora.double_quant")->unused = "only with nf4 and fp4";
    read_adapter(job);
    if (!job_key(job, "checkpoint.export")->given) {
        checkpoint->export = EXPORT_PEFT;
        job_key(job, "checkpoint.export")->derived = "from [lora]";
    }
}

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
    settle_lora(job);
    settle_optim(job);
    settle_idle(job);
    settle_batch(job, settle_mesh(job));
}
