/* hf.c - Hugging Face's TrainingArguments as JSON (training_args.json, or the
 * file that HfArgumentParser reads, with arguments of the model and the data;
 * TRL's too). */
#include "daemon/init/trainer_words.h"

#include "data/source.h"

#include <string.h>

/* "full_determinism" and the like are rows; these look at more than one key. */
static void take_type(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_true(value))
        foreign_set(foreign, name, "train.dtype", json_string(name));
}

static void take_strategy(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (foreign_is_open(value))
        return;
    foreign_set(
            foreign, name,
            strstr(name, "save") ? "checkpoint.save_strategy"
                                 : "eval.eval_strategy",
            json_deep_copy(value));
}

static void take_length(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_null(value))
        foreign_refuse(
                foreign, name, value,
                "without a limit; zerod needs one, and cuts what is longer");
    else if (!foreign_is_open(value))
        foreign_set(foreign, name, "data.cutoff_len", json_deep_copy(value));
}

static void take_resume(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_string(value))
        foreign_refuse(
                foreign, name, value,
                "checkpoints of other trainers are not read; a run goes on "
                "from its own (run.resume)");
}

static void take_report_to(
        struct foreign *foreign, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    bool has = text && (strstr(text, "tensorboard") || strstr(text, "all"));
    free(text);
    foreign_set(foreign, name, "report.tensorboard", json_boolean(has));
    if (!foreign->is_default)
        draft_note(
                foreign->draft, name, "of them TensorBoard; the page has all");
}

/* A percentage here, a share in HF's newer files. */
static void take_split(
        struct foreign *foreign, const char *name, const json_t *value)
{
    double share = json_number_value(value);
    if (json_is_number(value))
        foreign_set(
                foreign, name, "data.val_split",
                json_real(share >= 1 ? share / 100 : share));
}

static void take_validation(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_string(value))
        json_array_append_new(
                foreign->draft->eval, json_pack(
                                              "{s:{s:O, s:s}}", "path", "value",
                                              (json_t *)value, "why", name));
}

static void take_peft(
        struct foreign *foreign, const char *name, const json_t *value)
{
    foreign_set(
            foreign, name, "lora.enabled", json_boolean(json_is_true(value)));
}

/* TRL's SFTConfig has its own defaults; only its files have these keys. */
static bool is_trl(const struct foreign *foreign)
{
    static const char *const keys[] = {
            "use_peft",
            "packing",
            "dataset_text_field",
            "max_length",
            "completion_only_loss",
            "assistant_only_loss",
            "loss_type",
            "dataset_train_split",
            "lora_r",
            "load_in_4bit"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(foreign->root, keys[i]))
            return true;
    return false;
}

/* TRL trains on whole conversations unless assistant_only_loss, and on
 * completions alone unless completion_only_loss is false; data.train_on is one
 * for both, so it is told by the data where they are here. */
static void finish_train_on(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    struct data_entry entry = data_entry_default();
    struct file_list list;
    bool all = foreign_is(foreign, "completion_only_loss", false);
    const char *why = all ? "completion_only_loss" : "assistant_only_loss";
    const json_t *path = json_object_get(draft_source(draft), "path");
    entry.path = json_string_value(json_object_get(path, "value"));
    if (!path)
        json_array_clear(draft->train);
    if (foreign_is(foreign, "assistant_only_loss", true)) {
        all = false;
    } else if (!all && is_trl(foreign)) {
        if (entry.path && sources_find(&entry, &list) == ZD_OK) {
            all = sources_have_chat(&list);
            sources_free(&list);
            if (!foreign_get(foreign, why))
                why = "their default for conversations";
        } else {
            zd_error_clear();
            draft_say(
                    draft,
                    "TRL trains on whole conversations: if the data are some, "
                    "set train_on = \"all\" in [data].");
        }
    }
    if (all || foreign_is(foreign, why, true) ||
        foreign_is(foreign, "completion_only_loss", true))
        draft_set(
                draft, "data.train_on", json_string(all ? "all" : "assistant"),
                why);
}

/* The keys of an adapter stand in a whole dump without it. */
static void finish(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    const json_t *peft = foreign_get(foreign, "use_peft");
    words_finish(foreign);
    finish_train_on(foreign);
    if (!draft_has(draft, "train.dtype") && !is_trl(foreign) &&
        !json_object_get(draft->automatic, "train.dtype"))
        draft_set(
                draft, "train.dtype", json_string("fp32"),
                "neither bf16 nor fp16");
    if (json_is_true(peft) || draft_has(draft, "lora.enabled"))
        return;
    static const char *const keys[] = {
            "lora.r",
            "lora.lora_alpha",
            "lora.lora_dropout",
            "lora.target_modules",
            "lora.modules_to_save",
            "lora.use_rslora",
            "lora.use_dora"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (draft_has(draft, keys[i])) {
            draft_note(draft, keys[i], "use_peft is not true");
            draft_remove(draft, keys[i]);
        }
}

/* clang-format off */
#define OUTPUT  .why = "output only"
#define SPEED   .why = "an implementation of the same"
#define LOADER  .why = "how batches are read; zerod reads ahead by itself"
#define HUB     .why = "nothing is uploaded"
#define TRL(theirs) .absent = theirs, .when = "@"
#define PEFT(theirs) .absent = theirs, .when = "use_peft"
#define PART                                                                   \
    .why = "data are local files, read whole: leave the key out, and name "     \
           "the files of that part with --data"
#define FOLDERS .why = "the run's files lie in job.output_dir"
static const struct foreign_row rows[] = {
{"model_name_or_path", FOREIGN_CALL, .take = words_model},
{"config_name", FOREIGN_OFF, .words = "", .why = "the model's folder has its config.json"},
{"tokenizer_name", FOREIGN_KEY, "model.tokenizer"},
{"tokenizer_name_or_path", FOREIGN_KEY, "model.tokenizer"},
{"model_revision", FOREIGN_OFF, .words = "main", .why = "a model is a local folder"},
{"bnb_4bit_quant_storage", FOREIGN_NOTE, .why = "how codes are stored changes no value"},
{"truncation_mode", FOREIGN_OFF, .words = "keep_start", .why = "longer documents are cut at the end"},
{"loss_type", FOREIGN_OFF, .words = "nll", .why = "the loss is cross-entropy"},
{"model_init_kwargs lora_target_parameters router_aux_loss_coef activation_checkpointing", FOREIGN_OFF, .words = "{}|[]|false", .why = "zerod has no such setting"},
{"torch_dtype dtype", FOREIGN_NOTE, .why = "weights are computed with in train.dtype"},
{"attn_implementation low_cpu_mem_usage use_fast_tokenizer padding_free pad_to_multiple_of use_ipex "
 "jit_mode_eval gradient_checkpointing_kwargs use_liger use_liger_kernel liger_kernel_config torch_compile* "
 "torchdynamo ddp_*",
 FOREIGN_NOTE, SPEED},
{"trust_remote_code", FOREIGN_NOTE, .why = "no code of models is run"},
{"use_auth_token token trackio_space_id push_to_hub* hub_*", FOREIGN_NOTE, HUB},
{"cache_dir", FOREIGN_NOTE, .why = "data.cache_dir is zerod's own"},

{"train_file dataset_name dataset_path", FOREIGN_CALL, .take = words_train_file},
{"dataset_config_name dataset_config", FOREIGN_OFF, .words = "default", PART},
{"dataset_train_split", FOREIGN_OFF, .words = "train", PART},
{"dataset_test_split", FOREIGN_NOTE, .why = "it names no data to train on"},
{"dataset_text_field", FOREIGN_KEY, "data.train.field"},
{"dataset_num_proc", FOREIGN_KEY, "data.preprocessing_threads"},
{"dataset_kwargs", FOREIGN_OFF, .words = "{}", .why = "data are read by [[data.train]]"},
{"dataset_batch_size streaming dataset_streaming remove_unused_columns dataloader_* dispatch_batches "
 "split_batches accelerator_config*",
 FOREIGN_NOTE, LOADER},
{"validation_file", FOREIGN_CALL, .take = take_validation},
{"validation_split_percentage", FOREIGN_CALL, .take = take_split},
{"max_train_samples", FOREIGN_KEY, "data.train.max_samples"},
{"max_eval_samples", FOREIGN_OFF, .words = "", .why = "eval.max_batches counts batches"},
{"block_size", FOREIGN_KEY, "data.cutoff_len"},
{"max_length max_seq_length", FOREIGN_CALL, .take = take_length, TRL("1024")},
{"model_max_length", FOREIGN_KEY, "data.cutoff_len"},
{"packing", FOREIGN_KEY, "data.packing", TRL("false")},
{"packing_strategy", FOREIGN_NOTE, .why = "documents stand one behind the other"},
{"eval_packing", FOREIGN_NOTE, .why = "as data.packing"},
{"pad_token", FOREIGN_NOTE, .why = "padding is masked"},
{"eos_token", FOREIGN_NOTE, .why = "the tokenizer has it"},
{"chat_template_path", FOREIGN_OFF, .words = "", .why = "data.chat_template names one of zerod's"},
{"completion_only_loss assistant_only_loss", FOREIGN_CALL, .take = words_nothing},
{"preprocessing_num_workers", FOREIGN_KEY, "data.preprocessing_threads"},
{"overwrite_cache", FOREIGN_NOTE, .why = "the cache is found by its content"},
{"keep_linebreaks", FOREIGN_NOTE, .why = "text is taken as it is"},
{"shuffle_dataset", FOREIGN_NOTE, .why = "every epoch is shuffled, as by their sampler (data.shuffle)"},

{"use_peft", FOREIGN_CALL, .take = take_peft},
{"lora_r", FOREIGN_KEY, "lora.r", PEFT("16")},
{"lora_alpha", FOREIGN_KEY, "lora.lora_alpha", PEFT("32")},
{"lora_dropout", FOREIGN_KEY, "lora.lora_dropout", PEFT("0.05")},
{"lora_target_modules", FOREIGN_CALL, .take = words_modules, PEFT("null")},
{"lora_modules_to_save", FOREIGN_KEY, "lora.modules_to_save"},
{"lora_task_type", FOREIGN_OFF, .words = "CAUSAL_LM", .why = "models here predict the next token"},
{"use_rslora", FOREIGN_KEY, "lora.use_rslora"},
{"use_dora", FOREIGN_KEY, "lora.use_dora"},
{"load_in_4bit load_in_8bit", FOREIGN_CALL, .take = words_bits},
{"bnb_4bit_quant_type", FOREIGN_OFF, .words = "nf4|fp4", .why = "it is nf4 or fp4"},
{"use_bnb_nested_quant", FOREIGN_CALL, .take = words_nested, .absent = "false", .when = "load_in_4bit"},

{"output_dir", FOREIGN_KEY, "job.output_dir"},
{"overwrite_output_dir", FOREIGN_NOTE, .why = "run.resume says it"},
{"do_train", FOREIGN_NOTE, .why = "zerod trains"},
{"do_eval", FOREIGN_NOTE, .why = "eval.eval_strategy says it"},
{"do_predict", FOREIGN_OFF, .words = "false", .why = "zerod generate"},
{"eval_strategy evaluation_strategy save_strategy", FOREIGN_CALL, .take = take_strategy},
{"eval_steps", FOREIGN_KEY, "eval.eval_steps"},
{"eval_delay", FOREIGN_OFF, .words = "0|0.0", .why = "evaluations begin at once"},
{"use_legacy_prediction_loop eval_accumulation_steps eval_use_gather_object eval_do_concat_batches "
 "batch_eval_metrics prediction_loss_only include_inputs_for_metrics include_for_metrics",
 FOREIGN_NOTE, .why = "losses alone are kept"},
{"eval_on_start", FOREIGN_KEY, "eval.eval_on_start", .absent = "false"},
{"include_tokens_per_second include_num_input_tokens_seen", FOREIGN_NOTE, .why = "metrics.jsonl has it"},
{"per_device_train_batch_size per_gpu_train_batch_size", FOREIGN_KEY, "train.per_device_train_batch_size", .absent = "8"},
{"train_batch_size", FOREIGN_NOTE, .why = "per_device_train_batch_size says it"},
{"eval_batch_size", FOREIGN_NOTE, .why = "per_device_eval_batch_size says it"},
{"per_device_eval_batch_size per_gpu_eval_batch_size", FOREIGN_KEY, "eval.per_device_eval_batch_size"},
{"gradient_accumulation_steps", FOREIGN_KEY, "train.gradient_accumulation_steps"},
{"auto_find_batch_size", FOREIGN_KEY, "train.auto_find_batch_size"},
{"average_tokens_across_devices", FOREIGN_KEY, "train.average_tokens_across_devices"},
{"torch_empty_cache_steps", FOREIGN_NOTE, .why = "memory is planned"},
{"learning_rate", FOREIGN_KEY, "optim.learning_rate", TRL("2e-5")},
{"learning_rate", FOREIGN_KEY, "optim.learning_rate", .absent = "5e-5"},
{"weight_decay", FOREIGN_KEY, "optim.weight_decay", .absent = "0.0"},
{"adam_beta1", FOREIGN_KEY, "optim.adam_beta1", .absent = "0.9"},
{"adam_beta2", FOREIGN_KEY, "optim.adam_beta2", .absent = "0.999"},
{"adam_epsilon", FOREIGN_KEY, "optim.adam_epsilon", .absent = "1e-8"},
{"max_grad_norm", FOREIGN_KEY, "optim.max_grad_norm", .absent = "1.0"},
{"num_train_epochs", FOREIGN_KEY, "train.num_train_epochs", .absent = "3.0"},
{"max_steps", FOREIGN_KEY, "train.max_steps", "-1=|0="},
{"lr_scheduler_type", FOREIGN_CALL, .take = words_schedule, .absent = "linear"},
{"lr_scheduler_kwargs.min_lr lr_scheduler_kwargs.min_lr_rate warmup_ratio warmup_steps deepspeed", FOREIGN_CALL, .take = words_nothing},
{"optim", FOREIGN_KEY, "optim.name", "adamw_torch=adamw|adamw_torch_fused=adamw|adamw_hf=adamw|adamw_apex_fused=adamw|adamw_bnb_8bit=adamw_8bit|adamw_torch_8bit=adamw_8bit|paged_adamw=paged_adamw_32bit|lion_32bit=lion|paged_lion=paged_lion_32bit"},
{"optim_args", FOREIGN_OFF, .words = "", .why = "optimizers take no more than [optim] says"},
{"optim_target_modules", FOREIGN_OFF, .words = "", .why = "of GaLore"},
{"adafactor", FOREIGN_OFF, .words = "false", .why = "zerod has no Adafactor"},
{"bf16", FOREIGN_CALL, .take = take_type, TRL("true")},
{"fp16", FOREIGN_CALL, .take = take_type},
{"tf32", FOREIGN_KEY, "train.tf32"},
{"bf16_full_eval fp16_full_eval", FOREIGN_NOTE, .why = "evaluations compute as training does"},
{"fp16_opt_level fp16_backend half_precision_backend", FOREIGN_NOTE, .why = "of apex"},
{"use_cpu", FOREIGN_KEY, "device.backend", "true=cpu|false="},
{"no_cuda", FOREIGN_KEY, "device.backend", "true=cpu|false="},
{"use_mps_device", FOREIGN_OFF, .words = "false", .why = "zerod computes on CPUs and NVIDIA's GPUs"},
{"gradient_checkpointing", FOREIGN_CALL, .take = words_checkpointing, TRL("true")},
{"gradient_checkpointing", FOREIGN_CALL, .take = words_checkpointing, .absent = "false"},
{"activation_offloading", FOREIGN_KEY, "offload.activations", "true=cpu|false="},
{"use_cache", FOREIGN_NOTE, .why = "of samples"},
{"full_determinism", FOREIGN_NOTE, .why = "sums have one order"},
{"seed", FOREIGN_KEY, "job.seed", .absent = "42"},
{"data_seed", FOREIGN_KEY, "job.data_seed"},
{"label_smoothing_factor", FOREIGN_KEY, "train.label_smoothing_factor"},
{"neftune_noise_alpha", FOREIGN_KEY, "train.neftune_noise_alpha"},
{"label_names", FOREIGN_NOTE, .why = "labels are the tokens"},
{"group_by_length", FOREIGN_OFF, .words = "false", .why = "samples come in the order of the shuffle; packing wastes none"},
{"length_column_name", FOREIGN_NOTE, .why = "of group_by_length"},
{"train_sampling_strategy", FOREIGN_OFF, .words = "random", .why = "samples come in the order of the shuffle"},
{"ignore_data_skip", FOREIGN_NOTE, .why = "a resumed run goes on with the next sample"},
{"past_index", FOREIGN_OFF, .words = "-1", .why = "models here have no past"},
{"logging_steps", FOREIGN_KEY, "log.logging_steps", TRL("10")},
{"logging_steps", FOREIGN_KEY, "log.logging_steps", .absent = "500"},
{"logging_first_step", FOREIGN_KEY, "log.logging_first_step", .absent = "false"},
{"logging_strategy logging_nan_inf_filter log_level log_level_replica log_on_each_node disable_tqdm project "
 "skip_memory_metrics",
 FOREIGN_NOTE, OUTPUT},
{"logging_dir", FOREIGN_NOTE, FOLDERS},
{"report_to", FOREIGN_CALL, .take = take_report_to, .absent = "none"},
{"run_name", FOREIGN_KEY, "job.run_name"},
{"debug", FOREIGN_OFF, .words = "|[]", .why = "of torch"},
{"save_steps", FOREIGN_KEY, "checkpoint.save_steps", .absent = "500"},
{"save_total_limit", FOREIGN_KEY, "checkpoint.save_total_limit", "null=0", .absent = "null"},
{"save_only_model", FOREIGN_KEY, "checkpoint.save_only_model"},
{"save_safetensors", FOREIGN_NOTE, .why = "always"},
{"save_on_each_node", FOREIGN_NOTE, .why = "each rank writes its shard"},
{"enable_jit_checkpoint", FOREIGN_NOTE, .why = "run.on_sigterm"},
{"restore_callback_states_from_checkpoint", FOREIGN_NOTE, .why = "there are no callbacks"},
{"load_best_model_at_end", FOREIGN_KEY, "checkpoint.load_best_model_at_end"},
{"metric_for_best_model", FOREIGN_KEY, "checkpoint.metric_for_best_model", "loss=eval_loss"},
{"greater_is_better", FOREIGN_KEY, "checkpoint.greater_is_better"},
{"resume_from_checkpoint", FOREIGN_CALL, .take = take_resume},
{"ray_scope", FOREIGN_NOTE, .why = "of Ray"},
{"tpu_*", FOREIGN_NOTE, .why = "of TPUs"},
{"local_rank", FOREIGN_NOTE, .why = "MPI says it"},
{"mp_parameters", FOREIGN_OFF, .words = "", .why = "of SageMaker"},
{"_n_gpu", FOREIGN_NOTE, .why = "the number of ranks: mpirun -np N zerod"},
{"xpu_backend", FOREIGN_NOTE, .why = "of other devices"},
{"parallelism_config", FOREIGN_OFF, .words = "{}", .why = "ranks cut states alone (zero.stage)"},
{"deepspeed_plugin", FOREIGN_NOTE, .why = "deepspeed says it"},
{"sharded_ddp", FOREIGN_OFF, .words = "|[]", .why = "of fairscale: zero.stage"},
{"fsdp", FOREIGN_CALL, .take = words_fsdp},
{"fsdp_config*", FOREIGN_NOTE, .why = "how FSDP wraps and gathers; units are whole layers"},
{"fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap", FOREIGN_NOTE, .why = "units are whole layers"},
};
#undef OUTPUT
#undef SPEED
#undef LOADER
#undef HUB
#undef PART
#undef TRL
#undef PEFT
#undef FOLDERS
/* clang-format on */

static const struct foreign_default defaults[] = {
        {"optim.min_lr_ratio", "0.0"},
        {"optim.warmup_steps", "0"},
        {"eval.eval_strategy", "no"},
};

const struct foreign_format foreign_hf = {
        .name = "a file of Hugging Face's training arguments",
        .option = "hf",
        .rows = rows,
        .row_count = sizeof rows / sizeof rows[0],
        .defaults = defaults,
        .default_count = sizeof defaults / sizeof defaults[0],
        .finish = finish,
        .is_variant = is_trl,
};
