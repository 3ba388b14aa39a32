/* check.c - what a table of contradictions cannot say: whether the model has
 * what the job asks of it, and whether what it names is there. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "data/folder.h"
#include "model/adapters/peft.h"
#include "model/files/config.h"
#include "model/files/hub.h"
#include "model/params.h"
#include "offload/offload.h"
#include "optim/optimizers.h"
#include "train/plan/plan.h"
#include "train/text/text.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

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

/* --- [optim], [lora] --- */

static void check_optim(struct job *job)
{
    const struct optim_options *optim = &job->options.optim;
    const struct optimizer *optimizer = optimizer_of(optim->name);
    enum optim_state_type named = job->named_state, state = optim->state_type;
    if (state == named || job_key(job, "optim.name")->refused)
        return;
    const char *key = "optim.state_dtype", *with = NULL;
    if (optimizer->has_8bit)
        with = job_string(
                job, "name = \"%s%s_8bit\"", optim->paged ? "paged_" : "",
                optimizer->name);
    if (named == OPTIM_STATE_8BIT)
        job_refuse(
                job, "E0213", key, "remove one of the two",
                "optim.name says 8-bit states, and state_dtype says otherwise");
    else if (state == OPTIM_STATE_8BIT)
        job_refuse(
                job, "E0213", key, with,
                "8-bit states come with the optimizer's name");
    else if (!optimizer->has_bf16 || optim->paged)
        job_refuse(
                job, "E0213", key, NULL,
                "bf16 states are for optim.name = \"adamw\" alone");
}

/* This thread's error record at the key of [lora] that it speaks of: "lora.r =
 * 8 is ..", "`r` must ..". */
static void take_lora_record(struct job *job)
{
    bool has_path = job->options.lora.path != NULL;
    const char *what = zd_error_get()->what;
    const char *key = strncmp(what, "lora.", 5) == 0 ? what + 5
                      : what[0] == '`' && !has_path  ? what + 1
                                                     : "";
    const char *name = job_string(
            job, "lora.%.*s", (int)strspn(key, "abcdefghijklmnopqrstuvwxyz_"),
            key);
    if (!schema_find("lora", name + 5))
        name = has_path ? "lora.path" : "lora.enabled";
    job_take_record(job, name);
}

/* Do the tensors of lora.path fit the model, with the rows that its tokenizer
 * adds? */
static enum zd_status check_stored(const struct job *job)
{
    struct peft_adapter stored;
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
    ZD_SCOPED(model_config_fini) struct model_config grown = {0};
    ZD_TRY(job_plan_config(&job->options, &grown));
    ZD_TRY(job_plan_vocabulary(&job->options, &grown));
    ZD_TRY(param_table_build(&grown, NULL, 0, &table));
    ZD_TRY(peft_open(job->options.lora.path, &grown, &table, &stored));
    peft_close(&stored);
    return ZD_OK;
}

static void check_adapters(
        struct job *job, const struct model_config *config,
        struct param_table *table)
{
    const struct lora_options *lora = &job->options.lora;
    struct peft_config adapter;
    if (!lora->enabled || (lora->path && !fs_exists(lora->path)))
        return; /* the latter is told with the paths */
    for (int i = 0; i < schema_count; i++)
        if (schema_table[i].flags & SCHEMA_ADAPTER && job->keys[i].refused)
            return;
    enum zd_status status = lora_config(lora, &adapter);
    if (status == ZD_OK) {
        status = lora_extend(config, &adapter, lora, table);
        peft_config_fini(&adapter);
    }
    if (status == ZD_OK && lora->path)
        status = check_stored(job);
    ZD_THEN(status,
            lora_quantize(
                    config, lora, train_stored_base(&job->options), table));
    if (status != ZD_OK) {
        take_lora_record(job);
        return;
    }
    if (lora->quantize_base != LORA_BASE_NONE)
        return; /* contradictions.c says what goes with it */
    if (lora->gives_double_quant && lora->double_quant && !config->is_quantized)
        job_refuse(
                job, "E0213", "lora.double_quant", NULL,
                "double_quant without quantize_base: no weight is quantized");
    if (job_check_fp8_base(&job->options, table) != ZD_OK)
        job_take_record(job, "train.fp8");
}

/* --- the model --- */

/* `status`: whether the model can be cut as the key says. */
static bool is_cut(struct job *job, const char *name, enum zd_status status)
{
    struct job_key *key = job_key(job, name);
    if (status != ZD_OK && !key->refused &&
        strcmp(zd_error_get()->code, "E0224") == 0) {
        key->refused = true;
        job_take_record(job, name);
    }
    zd_error_clear(); /* the others are told where they stand */
    return !key->refused;
}

static void check_slices(struct job *job, const struct model_config *config)
{
    const struct train_job *options = &job->options;
    if (is_cut(job, "parallel.tp_size",
               job_check_slices(options, config, job->world)))
        is_cut(job, "parallel.cp_comm_type",
               job_check_heads(options, config, job->world));
}

static void check_config(struct job *job, const struct model_config *config)
{
    const struct train_options *train = &job->options.train;
    int cutoff_len = job->options.data.cutoff_len;
    struct job_key *key = job_key(job, "data.cutoff_len");
    ZD_SCOPED(param_table_fini) struct param_table table = {0};
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
    check_adapters(job, config, &table);
    check_slices(job, config);
}

static void check_model(struct job *job)
{
    const struct model_options *model = &job->options.model;
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    if (!!model->config == !!model->path ||
        (model->path && !fs_is_dir(model->path)))
        return;
    if (job_plan_config(&job->options, &config) == ZD_OK)
        check_config(job, &config);
    else if (model->config)
        job_take_record(job, "model.config");
    else
        zd_error_clear(); /* told with the paths */
}

void job_check(struct job *job)
{
    check_model(job); /* a tp_size that does not fit it is not told again */
    job_check_contradictions(job);
    check_optim(job);
    if (!job_key(job, "device.gpus")->refused)
        check_gpus(job);
}

/* --- paths --- */

/* Where [[data.NAME]] number i has its path. */
static struct toml_place entry_place(struct job *job, const char *name, int i)
{
    const struct toml_node *data = toml_find(job->root, "data"), *path = NULL;
    const struct toml_node *list = data ? toml_find(data, name) : NULL;
    if (list && list->kind == TOML_ARRAY && i < list->count)
        path = toml_find(list->items[i], "path");
    return path ? path->place
                : job_place(job, job_string(job, "data.%s", name));
}

static void help_missing(struct job *job, bool is_data, const char *path)
{
    char folder[PATH_MAX], help[HUB_HELP_BYTES];
    if (is_data ? hub_help_data(path, help) : hub_help(path, help))
        problem_help(&job->problems, "%s", help);
    else if (path[0] != '/' && getcwd(folder, sizeof folder))
        problem_help(
                &job->problems,
                "paths are relative to where zerod is started: %s", folder);
}

static void tell_missing(
        struct job *job, struct toml_place place, const char *what,
        const char *path)
{
    problem_add(
            &job->problems, ZD_ERR_NO_INPUT, "E0219", place, NULL,
            "%s %s does not exist", what, path);
    help_missing(job, strcmp(what, "data") == 0, path);
}

static void check_entries(
        struct job *job, const char *name, const struct data_entry *entries,
        int count)
{
    for (int i = 0; i < count; i++) {
        struct toml_place place = entry_place(job, name, i);
        json_auto_t *found = NULL;
        if (!entries[i].path || !*entries[i].path)
            continue; /* refused */
        if (match_files(entries[i].path, &found) != ZD_OK) {
            problem_take_record(&job->problems, place);
            continue;
        }
        if (json_array_size(found) == 0)
            tell_missing(job, place, "data", entries[i].path);
    }
}

/* Can what is there be read? */
static void check_read(struct job *job)
{
    const struct train_job *options = &job->options;
    ZD_SCOPED(model_config_fini) struct model_config config = {0};
    if (options->model.path && fs_exists(options->model.path) &&
        job_plan_config(options, &config) != ZD_OK)
        job_take_record(
                job, strstr(zd_error_get()->where, "model.rope_scaling")
                             ? "model.rope_scaling"
                             : "model.path");
    if (options->offload.optimizer == OFFLOAD_NVME &&
        offload_check_folder(options->offload.nvme_path) != ZD_OK)
        job_take_record(job, "offload.nvme_path");
}

void job_check_paths(struct job *job)
{
    const struct train_job *o = &job->options;
    bool has_problems = job->problems.count > 0;
    bool names_tokenizer =
            o->model.tokenizer && !text_is_bytes(o->model.tokenizer);
    const struct {
        const char *key, *what, *path;
    } named[] = {
            {"model.path", "model", o->model.path},
            {"lora.path", "adapter", o->lora.path},
            {"model.tokenizer", "tokenizer",
             names_tokenizer ? o->model.tokenizer : NULL},
            {"run.resume", "checkpoint",
             o->run.resume == RESUME_PATH ? o->run.resume_path : NULL},
            {"data.chat_template", "chat template", o->data.chat_file}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if (named[i].path && !job_key(job, named[i].key)->refused &&
            !fs_exists(named[i].path))
            tell_missing(
                    job, job_place(job, named[i].key), named[i].what,
                    named[i].path);
    check_entries(job, "train", o->data.train, o->data.train_count);
    check_entries(job, "eval", o->data.eval, o->data.eval_count);
    if (!has_problems)
        check_read(job);
}
