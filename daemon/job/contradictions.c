/* contradictions.c - values that are legal alone and wrong together: a row for
 * each pair. */
#include "daemon/job/job_internal.h"

#include "base/words.h"
#include "optim/optimizers.h"

#include <math.h>
#include <string.h>
#include <time.h>

struct rule {
    bool is_broken;
    const char *key; /* that is told */
    const char *what, *help;
    const char *code;  /* NULL: E0213 */
    const char *needs; /* "section.key ..": not told unless these, too, could be
                          read */
};

static bool are_sound(const struct job *job, const char *keys)
{
    char key[2 * SCHEMA_NAME_MAX];
    while (words_next(&keys, " ", key, sizeof key))
        if (job_key(job, key)->refused)
            return false;
    return true;
}

static void check(struct job *job, const struct rule *rules, size_t count)
{
    for (const struct rule *rule = rules; rule < rules + count; rule++)
        if (rule->is_broken && are_sound(job, rule->key) &&
            are_sound(job, rule->needs))
            job_refuse(
                    job, rule->code ? rule->code : "E0213", rule->key,
                    rule->help, "%s", rule->what);
}

/* clang-format off */
#define CHECK(job, rules) check(job, rules, sizeof rules / sizeof rules[0])

/* "2026-07-04"; what timegm changes is no day of the calendar. */
static bool is_date(const char *text)
{
    struct tm day = {0};
    const char *end = strptime(text, "%Y-%m-%d", &day);
    int number = day.tm_mday;
    return end && !*end && strlen(text) == strlen("2000-01-01") && timegm(&day) >= 0 && day.tm_mday == number;
}

static void check_model_and_data(struct job *job)
{
    const struct train_job *o = &job->options;
    const char *date = o->data.template_date;
    bool has_path = o->model.path != NULL;
    bool has_config = job_key(job, "model.config")->given;
    const struct rule rules[] = {
    {!has_path && !has_config, "model.path",
     "no model: neither model.path nor [model.config] is given", "path = \"a Hugging Face directory\" in [model], or its config.json's keys in [model.config]", "E0210"},
    {has_path && has_config, "model.config",
     "model.path and [model.config] are both given", "remove one: a path brings its own config.json"},
    {has_config && !has_path && job_key(job, "model.init")->given && o->model.init == MODEL_PRETRAINED, "model.init",
     "model.init = \"pretrained\" needs model.path; [model.config] has no weights"},
    {o->data.train_count == 0, "data.train",
     "no data: [[data.train]] is not given", "[[data.train]]\npath = \"data/*.txt\"", "E0210"},
    {o->data.eval_count > 0 && o->data.val_split > 0, "data.val_split",
     "data.val_split and [[data.eval]] are both given"},
    {date && !is_date(date), "data.template_date",
     "data.template_date is not a date", "write it as \"2026-07-04\"", "E0207"},
    {o->data.packing == PACKING_STREAM && o->data.long_documents != LONG_TRUNCATE, "data.long_documents",
     "packing = true cuts documents wherever a sample ends; long_documents is for the other values", "packing = \"documents\" in [data]", NULL, "data.packing"},
    {o->data.shuffle == SHUFFLE_WINDOWS && (o->data.val_split > 0 || o->data.packing == PACKING_NO || o->data.packing == PACKING_DOCUMENTS), "data.shuffle",
     "data.shuffle = \"windows\" needs documents packed as a stream, without val_split", "shuffle = true in [data], or packing = true", NULL, "data.packing data.val_split"},
    };
    CHECK(job, rules);
}

static void check_steps(struct job *job)
{
    const struct train_job *o = &job->options;
    int64_t all = o->train.max_steps;
    int64_t warmup = optim_warmup_steps(&o->optim, all);
    int64_t decay = optim_wsd_decay_steps(&o->optim, all);
    bool is_wsd = o->optim.lr_scheduler_type == LR_WSD;
    const char *const needs =
            "train.max_steps optim.warmup_steps optim.wsd_decay_steps";
    bool compares = o->checkpoint.save_strategy == SAVE_BEST;
    bool has_eval = o->data.eval_count > 0 || o->data.val_split > 0;
    const struct rule rules[] = {
    {all > 0 && warmup > all, "optim.warmup_steps",
     job_string(job, "the warm-up of %lld steps is longer than train.max_steps = %lld", (long long)warmup, (long long)all), NULL, "E0214", needs},
    {all > 0 && warmup <= all && is_wsd && warmup + decay > all, "optim.wsd_decay_steps",
     job_string(job, "warm-up and decay take %lld + %lld steps, train.max_steps is %lld", (long long)warmup, (long long)decay, (long long)all), NULL, "E0214", needs},
    {compares && !has_eval, "checkpoint.save_strategy",
     "save_strategy = \"best\" compares eval_loss, and there is no [[data.eval]] and no data.val_split", NULL, NULL, "data.eval"},
    {compares && has_eval && o->eval.eval_strategy == EVAL_NO, "checkpoint.save_strategy",
     "save_strategy = \"best\" compares eval_loss, and eval.eval_strategy is \"no\""},
    };
    CHECK(job, rules);
}

static void check_types(struct job *job)
{
    const struct train_job *o = &job->options;
    const struct fp16_options *fp16 = &o->train.fp16;
    const char *dtype = dtype_name(o->train.dtype);
    const struct rule rules[] = {
    {o->train.dtype == DTYPE_FP16 && fp16->loss_scale <= 0 && ldexp(1, fp16->initial_scale_power) < fp16->min_loss_scale, "train.fp16.min_loss_scale",
     job_string(job, "the first loss scale, 2^%d, is below train.fp16.min_loss_scale = %g", fp16->initial_scale_power, fp16->min_loss_scale), NULL, NULL, "train.dtype train.fp16.initial_scale_power"},
    {o->train.fp8 != FP8_NONE && o->train.dtype != DTYPE_BF16, "train.fp8",
     job_string(job, "train.fp8 needs train.dtype = \"bf16\", not \"%s\"", dtype), "dtype = \"bf16\" in [train]", NULL, "train.dtype"},
    {o->train.fp8 != FP8_NONE && o->lora.enabled && o->lora.quantize_base != LORA_BASE_NONE && o->lora.quantize_base != LORA_BASE_FP8, "train.fp8",
     "train.fp8 over a base in nf4, fp4 or int8 would round its weights twice", "quantize_base = \"fp8\" or \"none\" in [lora]", NULL, "lora.quantize_base"},
    {o->optim.master == OPTIM_MASTER_NONE && o->train.dtype != DTYPE_BF16, "optim.master",
     job_string(job, "master = \"none\" needs train.dtype = \"bf16\", not \"%s\"", dtype), o->train.dtype == DTYPE_FP32 ? "in fp32 the parameters are the masters already" : "fp16 has too small a range to train without them", NULL, "optim.name train.dtype"},
    };
    CHECK(job, rules);
}

/* With adapters, and without. */
static void check_lora(struct job *job)
{
    const struct train_job *o = &job->options;
    const struct lora_options *lora = &o->lora;
    bool is_on = lora->enabled,
         in_codes = lora->quantize_base != LORA_BASE_NONE;
    bool in_4bit = lora->quantize_base == LORA_BASE_NF4 ||
                   lora->quantize_base == LORA_BASE_FP4;
    const struct rule rules[] = {
    {!is_on && lora->path, "lora.path",
     "lora.path with enabled = false"},
    {!is_on && o->checkpoint.export == EXPORT_PEFT, "checkpoint.export",
     "export = \"peft\" writes an adapter, and lora.enabled is false"},
    {!is_on && in_codes, "lora.quantize_base",
     job_string(job, "quantize_base without adapters: quantized weights do not train, and lora.enabled is %s", job_key(job, "lora.enabled")->given ? "false" : "not given"), "enabled = true in [lora]"},
    {is_on && lora->gives_double_quant && lora->double_quant && lora->gives_quantize_base && !in_4bit, "lora.double_quant",
     "double_quant is for the scales of nf4 and fp4, which quantize_base is not"},
    {is_on && o->train.freeze_count, "train.freeze",
     "train.freeze and [lora]: with adapters the whole model is frozen but for lora.modules_to_save"},
    {is_on && o->optim.master == OPTIM_MASTER_NONE, "optim.master",
     "master = \"none\" and [lora]: adapters have fp32 masters"},
    };
    CHECK(job, rules);
}

/* What tensor and context parallelism cut, and what they cannot cut yet. */
static void check_tensor(struct job *job)
{
    const struct train_job *o = &job->options;
    int tp = o->parallel.tp, cp = o->parallel.cp, length = o->data.cutoff_len;
    int64_t unit = mesh_token_unit(o->parallel);
    bool is_on = tp > 1;
    const struct rule rules[] = {
    {length % unit, cp > 1 ? "parallel.cp_size" : "parallel.tp_size",
     job_string(job, "%s = %lld does not divide the %d tokens of a sample", cp == 1 ? "parallel.tp_size" : tp == 1 ? "2 x parallel.cp_size" : "2 x parallel.cp_size x tp_size", (long long)unit, length),
     job_string(job, "cutoff_len = %lld in [data]", (long long)(length < unit ? unit : length / unit * unit)), "E0224", "data.cutoff_len parallel.cp_size parallel.tp_size"},
    {is_on && o->lora.enabled && o->lora.use_dora, "parallel.tp_size",
     "lora.use_dora needs whole rows, and parallel.tp_size cuts them", "use_dora = false in [lora], or parallel.tp_size = 1", "E0224", "lora.use_dora"},
    };
    CHECK(job, rules);
}

/* The plan refuses those with several ranks too, whose number it may change. */
static void check_offload(struct job *job)
{
    const struct train_job *o = &job->options;
    const struct offload_options *off = &o->offload;
    bool undoes = off->clipping == OFFLOAD_CLIP_UNDO;
    bool has_sums = optimizer_needs(o->optim.name) == OPTIM_NEEDS_BLOCK_SUMS;
    bool has_ranks = job->world > o->parallel.tp && off->optimizer != OFFLOAD_NONE;
    enum checkpointing_mode mode = o->train.gradient_checkpointing.mode;
    const struct rule rules[] = {
    {off->params == OFFLOAD_CPU && off->optimizer == OFFLOAD_NONE, "offload.params",
     "offload.params needs the optimizer on the host too: parameters come from its master weights", "optimizer = \"cpu\" in [offload]", "E0660", "offload.optimizer"},
    {off->params == OFFLOAD_NVME && off->optimizer != OFFLOAD_NVME, "offload.params",
     "offload.params = \"nvme\" keeps parameters in the file of the optimizer states, which are not on NVMe", "set offload.optimizer = \"nvme\" or offload.params = \"cpu\"", "E0651", "offload.optimizer"},
    {off->optimizer == OFFLOAD_NVME && !(off->nvme_path && *off->nvme_path), "offload.optimizer",
     "offload.optimizer = \"nvme\" needs a folder for its file", "nvme_path = \"/path/on/a/fast/disk\" in [offload]", "E0655", "offload.nvme_path"},
    {undoes && off->optimizer == OFFLOAD_NVME, "offload.clipping",
     "offload.clipping = \"undo\" cannot restore states that are streamed from NVMe", "clipping = \"wait\" in [offload]", "E0650", "offload.optimizer optim.name"},
    {undoes && off->optimizer == OFFLOAD_CPU && has_sums, "offload.clipping",
     "offload.clipping = \"undo\" cannot update before the norm is known with Adam-mini, which divides by block sums", "clipping = \"wait\" in [offload]", "E0650", "offload.optimizer optim.name"},
    {off->device_update > 0 && off->optimizer == OFFLOAD_NVME, "offload.device_update",
     "offload.device_update is for states in host memory, and offload.optimizer = \"nvme\" keeps them on disk", "device_update = 0 in [offload]", "E0650", "offload.optimizer"},
    {off->device_update > 0 && off->optimizer == OFFLOAD_CPU && has_sums, "offload.device_update",
     "offload.device_update cannot share Adam-mini's update, whose block sums are made on the host", "device_update = 0 in [offload]", "E0650", "optim.name"},
    {has_ranks && off->params != OFFLOAD_NONE && o->zero.stage < 3, "offload.params",
     job_string(job, "offload.params with several ranks needs zero.stage = 3: at stage %d every rank keeps all parameters", o->zero.stage), "zero.stage = 3", "E0661", "offload.optimizer zero.stage"},
    {has_ranks && off->accumulate == OFFLOAD_ACCUMULATE_HOST && o->zero.stage == 0 && job->accumulation > 1, "offload.accumulate",
     "offload.accumulate = \"host\" with several ranks needs zero.stage = 1 or more: at stage 0 every rank keeps all gradients on the device", "zero.stage = 1, or offload.accumulate = \"device\"", "E0662", "offload.optimizer zero.stage"},
    {off->accumulate == OFFLOAD_ACCUMULATE_HOST && o->train.accumulation_order == ORDER_BREADTH_FIRST, "train.accumulation_order",
     "train.accumulation_order = \"breadth_first\" sums micro-batches on the device, offload.accumulate = \"host\" on the host",
     "offload.accumulate = \"auto\", or train.accumulation_order = \"depth_first\"", "E0663", "offload.accumulate"},
    {off->activations != OFFLOAD_NONE && (mode == CHECKPOINTING_NONE || mode == CHECKPOINTING_SELECTIVE), "offload.activations",
     "offload.activations = \"cpu\" keeps the inputs of recomputed layers on the host, and train.gradient_checkpointing = \"none\" or \"selective\" recomputes none", "train.gradient_checkpointing = \"full\"", NULL, "train.gradient_checkpointing"},
    };
    CHECK(job, rules);
}

#undef CHECK
/* clang-format on */

void job_check_contradictions(struct job *job)
{
    check_model_and_data(job);
    check_steps(job);
    check_types(job);
    check_lora(job);
    check_offload(job);
    check_tensor(job);
}
