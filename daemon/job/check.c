/* check.c - values that are legal alone and wrong together. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "model/files/config.h"
#include "model/params.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define CONTRADICTION "E0213"

static void tell(
        struct job *job, const char *code, const char *section,
        const char *name, const char *what)
{
    problem_add(
            &job->problems, ZD_ERR_CONFIG, code, job_place(job, section, name),
            NULL, "%s", what);
}

/* --- required keys --- */

static void check_required(struct job *job)
{
    const struct train_job *options = &job->options;
    bool has_path = options->model.path != NULL;
    bool has_config = job_is_given(job, "model", "config");
    if (!has_path && !has_config && job_is_sound(job, "model", "path")) {
        tell(job, "E0210", "model", "path",
             "no model: neither model.path nor [model.config] is given");
        problem_help(
                &job->problems,
                "path = \"a Hugging Face directory\" in [model], or its "
                "config.json's keys in [model.config]");
    }
    if (has_path && has_config) {
        tell(job, CONTRADICTION, "model", "config",
             "model.path and [model.config] are both given");
        problem_help(
                &job->problems,
                "remove one: a path brings its own config.json");
    }
    if (has_config && !has_path && job_is_given(job, "model", "init") &&
        options->model.init == MODEL_PRETRAINED)
        tell(job, CONTRADICTION, "model", "init",
             "model.init = \"pretrained\" needs model.path; [model.config] "
             "has no weights");
    if (options->data.train_count == 0 && job_is_sound(job, "data", "train")) {
        tell(job, "E0210", "data", "train",
             "no data: [[data.train]] is not given");
        problem_help(&job->problems, "[[data.train]]\npath = \"data/*.txt\"");
    }
}

/* --- schedule --- */

static void check_schedule(struct job *job)
{
    const struct optim_options *optim = &job->options.optim;
    int64_t max_steps = job->options.train.max_steps;
    if (max_steps <= 0 || !job_is_sound(job, "train", "max_steps") ||
        !job_is_sound(job, "optim", "warmup_steps") ||
        !job_is_sound(job, "optim", "wsd_decay_steps"))
        return;
    int64_t warmup = optim_warmup_steps(optim, max_steps);
    if (warmup > max_steps) {
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0214",
                job_place(job, "optim", "warmup_steps"), NULL,
                "the warm-up of %lld steps is longer than train.max_steps = "
                "%lld",
                (long long)warmup, (long long)max_steps);
        return;
    }
    int64_t decay = optim_wsd_decay_steps(optim, max_steps);
    if (optim->lr_scheduler_type == LR_WSD && warmup + decay > max_steps)
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0214",
                job_place(job, "optim", "wsd_decay_steps"), NULL,
                "warm-up and decay take %lld + %lld steps, train.max_steps is "
                "%lld",
                (long long)warmup, (long long)decay, (long long)max_steps);
}

/* --- fp16 --- */

static void check_fp16(struct job *job)
{
    const struct train_options *train = &job->options.train;
    static const char *const names[] = {
            "loss_scale", "initial_scale_power", "loss_scale_window",
            "hysteresis", "min_loss_scale"};
    if (!job_is_sound(job, "train", "dtype"))
        return;
    for (int i = 0; i < 5 && train->dtype != DTYPE_FP16; i++) {
        if (!job_is_given(job, "train.fp16", names[i]))
            continue;
        problem_add(
                &job->problems, ZD_ERR_CONFIG, CONTRADICTION,
                job_place(job, "train.fp16", names[i]), NULL,
                "train.fp16.%s is for train.dtype = \"fp16\", which is \"%s\"",
                names[i], dtype_name(train->dtype));
        problem_help(
                &job->problems, "dtype = \"fp16\" in [train], or remove "
                                "[train.fp16]");
    }
    if (train->dtype == DTYPE_FP16 && train->fp16.loss_scale <= 0 &&
        job_is_sound(job, "train.fp16", "initial_scale_power") &&
        job_is_sound(job, "train.fp16", "min_loss_scale") &&
        ldexp(1, train->fp16.initial_scale_power) < train->fp16.min_loss_scale)
        problem_add(
                &job->problems, ZD_ERR_CONFIG, CONTRADICTION,
                job_place(job, "train.fp16", "min_loss_scale"), NULL,
                "the first loss scale, 2^%d, is below "
                "train.fp16.min_loss_scale "
                "= %g",
                train->fp16.initial_scale_power, train->fp16.min_loss_scale);
}

/* --- evaluation and saving --- */

static void check_eval(struct job *job)
{
    const struct train_job *options = &job->options;
    bool has_eval = options->data.eval_count > 0 || options->data.val_split > 0;
    if (options->data.eval_count > 0 && options->data.val_split > 0)
        tell(job, CONTRADICTION, "data", "val_split",
             "data.val_split and [[data.eval]] are both given");
    if (options->checkpoint.save_strategy != SAVE_BEST ||
        options->checkpoint.metric_for_best_model != BEST_EVAL_LOSS)
        return;
    if (!has_eval && job_is_sound(job, "data", "eval"))
        tell(job, CONTRADICTION, "checkpoint", "save_strategy",
             "save_strategy = \"best\" compares eval_loss, and there is no "
             "[[data.eval]] and no data.val_split");
    else if (options->eval.eval_strategy == EVAL_NO)
        tell(job, CONTRADICTION, "checkpoint", "save_strategy",
             "save_strategy = \"best\" compares eval_loss, and "
             "eval.eval_strategy is \"no\"");
}

/* --- the model --- */

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        char before = at == text ? ' ' : at[-1], after = at[length];
        if (!isalnum((unsigned char)before) && before != '_' &&
            !isalnum((unsigned char)after) && after != '_')
            return true;
    }
    return false;
}

/* The key of [model.config] that the error speaks of, or the table. */
static struct toml_place config_place(const struct job *job, const char *what)
{
    const struct toml_node *model = toml_find(job->root, "model");
    const struct toml_node *table = model ? toml_find(model, "config") : NULL;
    struct toml_place place = job_place(job, "model", "config");
    size_t longest = 0;
    for (int i = 0; table && i < table->count; i++) {
        const struct toml_node *item = table->items[i];
        if (strlen(item->key) > longest && has_word(what, item->key)) {
            longest = strlen(item->key);
            place = item->key_place;
        }
    }
    return place;
}

static void check_config(struct job *job, const struct model_config *config)
{
    const struct train_options *train = &job->options.train;
    int cutoff_len = job->options.data.cutoff_len;
    struct param_table table;
    if (job_is_sound(job, "data", "cutoff_len") &&
        cutoff_len > config->max_positions)
        problem_add(
                &job->problems, ZD_ERR_CONFIG, "E0215",
                job_place(job, "data", "cutoff_len"), NULL,
                "data.cutoff_len = %d is beyond the model's %d positions",
                cutoff_len, config->max_positions);
    if (param_table_build(config, train->freeze, train->freeze_count, &table)) {
        problem_take_record(&job->problems, job_place(job, "train", "freeze"));
        return;
    }
    job_check_adapters(job, config, &table);
    param_table_fini(&table);
}

static void check_model(struct job *job)
{
    const struct model_options *model = &job->options.model;
    struct model_config config;
    if (model->config && !model->path) {
        enum zd_status status = model_config_parse(
                model->config, "[model.config]", ZD_ERR_CONFIG, &config);
        if (status != ZD_OK) {
            problem_take_record(
                    &job->problems, config_place(job, zd_error_get()->what));
            return;
        }
    } else if (model->path && !model->config && fs_is_dir(model->path)) {
        if (job_read_config(&job->options, &config) != ZD_OK) {
            zd_error_clear(); /* told with the paths */
            return;
        }
    } else {
        return;
    }
    check_config(job, &config);
    model_config_fini(&config);
}

static void check_gpus(struct job *job)
{
    const char *gpus = job->options.device.gpus;
    if (!job_is_sound(job, "device", "gpus") || device_gpus_are_valid(gpus))
        return;
    problem_add(
            &job->problems, ZD_ERR_CONFIG, "E0206",
            job_place(job, "device", "gpus"), NULL,
            "gpus = \"%.80s\": it is \"auto\", or numbers with commas", gpus);
    problem_help(&job->problems, "gpus = \"0,1\"");
}

void job_check(struct job *job)
{
    check_required(job);
    check_schedule(job);
    check_fp16(job);
    check_eval(job);
    job_check_lora(job);
    job_check_optim(job);
    job_check_offload(job);
    check_gpus(job);
    job_check_control(job);
    check_model(job);
}
