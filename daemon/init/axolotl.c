/* axolotl.c - axolotl's files, key by key. */
#include "base/file/fs.h"
#include "daemon/init/axolotl_data.h"
#include "daemon/init/trainer_words.h"

#include <limits.h>
#include <string.h>

/* The tokenizer has its own, which zerod takes. */
static void take_special(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *kind = strchr(name, '.') + 1;
    const char *model = draft_text(foreign->draft, "model.path");
    char path[PATH_MAX];
    json_t *config = NULL;
    if (!strcmp(kind, "pad_token")) {
        draft_note(foreign->draft, name, "padding is masked");
        return;
    }
    if (model)
        fs_join(path, sizeof path, model, "tokenizer_config.json");
    if (!model || !fs_exists(path) ||
        json_parse_file(path, 1 << 26, &config) != ZD_OK) {
        zd_error_clear();
        draft_note(
                foreign->draft, name,
                "right where it is the tokenizer's own, which zerod takes");
        return;
    }
    const json_t *own = json_object_get(config, kind);
    if (json_is_object(own))
        own = json_object_get(own, "content");
    if (json_equal((json_t *)own, (json_t *)value))
        draft_note(foreign->draft, name, "the tokenizer's own, as here");
    else
        foreign_refuse(
                foreign, name, value, "the model's tokenizer has another");
    json_decref(config);
}

/* --- adapters ------------------------------------------------------------- */

static void take_adapter(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *kind = json_string_value(value);
    if (foreign_is_open(value) || (kind && !*kind))
        return;
    if (!kind || (strcmp(kind, "lora") != 0 && strcmp(kind, "qlora") != 0)) {
        foreign_refuse(foreign, name, value, "it is lora or qlora");
        return;
    }
    foreign_set(foreign, name, "lora.enabled", json_true());
    if (!strcmp(kind, "qlora"))
        foreign_set(foreign, name, "lora.quantize_base", json_string("nf4"));
}

/* lora_target_linear goes before the list of modules. */
static void take_modules(
        struct foreign *foreign, const char *name, const json_t *value)
{
    bool is_linear = !strcmp(name, "lora_target_linear");
    if (is_linear && json_is_true(value))
        draft_replace(
                foreign->draft, "lora.target_modules",
                json_string("all-linear"), name);
    else if (!is_linear && foreign_is(foreign, "lora_target_linear", true))
        draft_note(foreign->draft, name, "overridden by lora_target_linear");
    else if (!is_linear)
        words_modules(foreign, name, value);
}

/* --- types, steps --------------------------------------------------------- */

static void take_type(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_true(value) || foreign_is_open(value))
        foreign_set(
                foreign, name, "train.dtype",
                json_string(strstr(name, "bf") ? "bf16" : "fp16"));
}

static void take_type_if_true(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_true(value))
        take_type(foreign, name, value);
}

/* So many an epoch, as a share of all steps. */
static void take_per_epoch(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const json_t *epochs = foreign_get(foreign, "num_epochs");
    double count = json_number_value(value);
    double all = json_is_number(epochs) ? json_number_value(epochs) : 1;
    bool saves = strstr(name, "saves") != NULL;
    if (foreign_is_open(value))
        return;
    if (count <= 0 || count * all < 1) {
        foreign_set(
                foreign, name,
                saves ? "checkpoint.save_strategy" : "eval.eval_strategy",
                json_string("no"));
        return;
    }
    if (count == 1)
        foreign_set(
                foreign, name,
                saves ? "checkpoint.save_strategy" : "eval.eval_strategy",
                json_string("epoch"));
    else
        foreign_set(
                foreign, name,
                saves ? "checkpoint.save_steps" : "eval.eval_steps",
                json_real(1 / (count * all)));
}

static void take_split(
        struct foreign *foreign, const char *name, const json_t *value)
{
    double share = json_number_value(value);
    if (json_is_number(value) && share >= 1)
        foreign_refuse(
                foreign, name, value,
                "a number of samples; here it is a share (data.val_split)");
    else if (share > 0)
        foreign_set(foreign, name, "data.val_split", json_real(share));
}

static void take_strategy(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (!foreign_is_open(value))
        foreign_set(
                foreign, name,
                strstr(name, "save") ? "checkpoint.save_strategy"
                                     : "eval.eval_strategy",
                json_deep_copy(value));
}

static void take_plugins(
        struct foreign *foreign, const char *name, const json_t *value)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)value, i, item)
    {
        const char *plugin = json_string_value(item);
        if (plugin && (strstr(plugin, "liger") || strstr(plugin, "cut_cross")))
            draft_note(foreign->draft, name, "other kernels for the same");
        else
            foreign_refuse(foreign, name, item, "no such plugin here");
    }
}

static void finish(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    words_finish(foreign);
    if (!draft_has(draft, "train.dtype") && foreign_get(foreign, "bf16"))
        draft_set(
                draft, "train.dtype", json_string("fp32"),
                "neither bf16 nor fp16");
    if (!draft_has(draft, "data.val_split") && !json_array_size(draft->eval) &&
        !draft_has(draft, "eval.eval_strategy"))
        draft_set(
                draft, "eval.eval_strategy", json_string("no"),
                "nothing to evaluate on");
    if (!draft_has(draft, "checkpoint.save_strategy") &&
        foreign_is_open(foreign_get(foreign, "save_steps")))
        draft_set(
                draft, "checkpoint.save_strategy", json_string("epoch"),
                "their default");
    if (draft_has(draft, "lora.enabled"))
        return;
    static const char *const keys[] = {
            "lora.r",
            "lora.lora_alpha",
            "lora.lora_dropout",
            "lora.target_modules",
            "lora.modules_to_save",
            "lora.path",
            "lora.quantize_base"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (draft_has(draft, keys[i])) {
            if (!strcmp(keys[i], "lora.quantize_base"))
                draft_refuse(
                        draft,
                        "%s: a quantised model is trained with adapters alone",
                        foreign->path);
            draft_note(draft, keys[i], "adapter is not given");
            draft_remove(draft, keys[i]);
        }
}

/* clang-format off */
#define OUTPUT  .why = "output only"
#define SPEED   .why = "an implementation of the same"
#define LOADER  .why = "how batches are read; zerod reads ahead by itself"
#define HUB     .why = "nothing is uploaded"
#define CONFIG  .why = "the model's folder says it"
static const struct foreign_row rows[] = {
{"base_model", FOREIGN_CALL, .take = words_model},
{"base_model_config base_model_ignore_patterns model_type tokenizer_type tokenizer_legacy "
 "is_llama_derived_model is_mistral_derived_model is_qwen_derived_model is_falcon_derived_model",
 FOREIGN_NOTE, CONFIG},
{"revision_of_model", FOREIGN_OFF, .words = "main", .why = "a model is a local folder"},
{"tokenizer_config", FOREIGN_KEY, "model.tokenizer"},
{"tokenizer_use_fast lora_on_cpu lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel "
 "multipack_real_batches gradient_checkpointing_kwargs* flash_attention flash_attn_* xformers_attention "
 "sdp_attention eager_attention flex_attention attn_implementation unsloth_* torch_compile* liger_* "
 "cut_cross_entropy ddp*",
 FOREIGN_NOTE, SPEED},
{"trust_remote_code", FOREIGN_NOTE, .why = "no code of models is run"},
{"overrides_of_model_config* overrides_of_model_kwargs* rope_scaling*", FOREIGN_OFF, .words = "{}", .why = "the model is as its config.json says"},
{"special_tokens.pad_token special_tokens.bos_token special_tokens.eos_token special_tokens.unk_token", FOREIGN_CALL, .take = take_special},
{"tokens", FOREIGN_OFF, .words = "[]", .why = "tokens that a tokenizer lacks are added with lora.modules_to_save and a tokenizer that has them"},
{"added_tokens_overrides", FOREIGN_OFF, .words = "{}", .why = "the tokenizer is taken as it is"},
{"resize_token_embeddings_to_32x", FOREIGN_NOTE, .why = "the vocabulary is padded where that is faster"},

{"strict", FOREIGN_NOTE, .why = "unknown keys are always errors"},
{"load_in_8bit load_in_4bit", FOREIGN_CALL, .take = words_bits},
{"gptq", FOREIGN_OFF, .words = "false", .why = "models quantised by GPTQ are not read"},
{"bnb_config_kwargs*", FOREIGN_OFF, .words = "{}", .why = "lora.quantize_base and lora.double_quant say it"},
{"adapter", FOREIGN_CALL, .take = take_adapter},
{"lora_model_dir", FOREIGN_KEY, "lora.path", "="},
{"lora_r", FOREIGN_KEY, "lora.r", .absent = "8", .when = "adapter"},
{"lora_alpha", FOREIGN_KEY, "lora.lora_alpha", .absent = "16", .when = "adapter"},
{"lora_dropout", FOREIGN_KEY, "lora.lora_dropout", .absent = "0.0", .when = "adapter"},
{"lora_target_modules lora_target_linear", FOREIGN_CALL, .take = take_modules, .absent = "null", .when = "adapter"},
{"lora_modules_to_save", FOREIGN_KEY, "lora.modules_to_save"},
{"lora_fan_in_fan_out", FOREIGN_NOTE, .why = "how GPT-2's weights lie is known"},
{"peft_use_dora", FOREIGN_KEY, "lora.use_dora"},
{"peft_use_rslora", FOREIGN_KEY, "lora.use_rslora"},
{"peft_layers_to_transform", FOREIGN_KEY, "lora.layers_to_transform"},
{"loraplus_lr_ratio", FOREIGN_KEY, "lora.loraplus_lr_ratio"},
{"loraplus_lr_embedding", FOREIGN_NOTE, .why = "embeddings get no adapters"},
{"relora*", FOREIGN_OFF, .words = "false|0", .why = "zerod has no ReLoRA"},
{"unfrozen_parameters", FOREIGN_OFF, .words = "[]", .why = "train.freeze names what is not trained"},

{"datasets test_datasets pretraining_dataset", FOREIGN_CALL, .take = axolotl_datasets},
{"dataset_prepared_path", FOREIGN_NOTE, .why = "data.cache_dir is zerod's own"},
{"dataset_processes", FOREIGN_KEY, "data.preprocessing_threads"},
{"dataset_num_proc", FOREIGN_KEY, "data.preprocessing_threads"},
{"dataset_keep_in_memory skip_prepare_dataset dataloader_* remove_unused_columns", FOREIGN_NOTE, LOADER},
{"dataset_exact_deduplication", FOREIGN_OFF, .words = "false", .why = "data are taken as they are"},
{"shuffle_merged_datasets", FOREIGN_NOTE, .why = "data.shuffle"},
{"push_dataset_to_hub hub_* push_to_hub* hf_use_auth_token", FOREIGN_NOTE, HUB},
{"val_set_size", FOREIGN_CALL, .take = take_split},
{"sequence_len", FOREIGN_KEY, "data.cutoff_len", .absent = "512"},
{"sample_packing", FOREIGN_KEY, "data.packing", .absent = "false"},
{"sample_packing_*", FOREIGN_NOTE, .why = "documents stand one behind the other"},
{"eval_sample_packing", FOREIGN_NOTE, .why = "as data.packing"},
{"pad_to_sequence_len", FOREIGN_NOTE, .why = "padding is masked"},
{"excess_length_strategy", FOREIGN_OFF, .words = "truncate", .why = "longer documents are cut, none is dropped"},
{"train_on_inputs", FOREIGN_WORD, "data.train_on", "true=all|false=assistant", .absent = "false"},
{"chat_template", FOREIGN_WORD, "data.chat_template", "chatml=chatml|llama3=llama3|qwen_25=qwen|tokenizer_default=auto|tokenizer_default_fallback_chatml=auto", .why = "of their templates chatml, llama3, qwen_25 and the tokenizer's own are known"},
{"chat_template_jinja", FOREIGN_OFF, .words = "", .why = "data.chat_template names one of zerod's"},
{"default_system_message", FOREIGN_OFF, .words = "", .why = "a system message stands in the data"},
{"group_by_length", FOREIGN_OFF, .words = "false", .why = "samples come in the order of the shuffle; packing wastes none"},
{"neftune_noise_alpha", FOREIGN_KEY, "train.neftune_noise_alpha"},
{"noisy_embedding_alpha", FOREIGN_KEY, "train.neftune_noise_alpha"},
{"rl reward_model", FOREIGN_OFF, .words = "false", .why = "zerod trains on text, not on preferences"},

{"micro_batch_size", FOREIGN_KEY, "train.per_device_train_batch_size", .absent = "1"},
{"eval_batch_size", FOREIGN_KEY, "eval.per_device_eval_batch_size"},
{"gradient_accumulation_steps", FOREIGN_KEY, "train.gradient_accumulation_steps"},
{"auto_find_batch_size", FOREIGN_KEY, "train.auto_find_batch_size"},
{"num_epochs", FOREIGN_KEY, "train.num_train_epochs", .absent = "1.0"},
{"max_steps", FOREIGN_KEY, "train.max_steps", "-1="},
{"optimizer", FOREIGN_KEY, "optim.name", "adamw_torch=adamw|adamw_torch_fused=adamw|adamw_hf=adamw|adamw_apex_fused=adamw|adamw_bnb_8bit=adamw_8bit|adamw_torch_8bit=adamw_8bit|paged_adamw=paged_adamw_32bit|lion_32bit=lion|paged_lion=paged_lion_32bit", .absent = "adamw_torch_fused"},
{"dion_* qgalore_* relora_prune_method adam_beta3 adam_epsilon2 adam_rank_*", FOREIGN_NOTE, .why = "for an optimizer that zerod does not have"},
{"eaft_* generation_* num_generation_samples profiler_steps* include_tkps merge_method pretrain_multipack_* streaming_multipack_buffer_size tiled_mlp_*",
 FOREIGN_NOTE, .why = "for a setting that is off, or output only"},
{"experimental_skip_move_to_device tokenizer_save_jinja_files quantize_moe_experts ple_cpu_offload qlora_sharded_model_loading layer_offloading",
 FOREIGN_NOTE, SPEED},
{"generate_samples mean_resizing_embeddings shuffle_before_merging_datasets", FOREIGN_OFF, .words = "false", .why = "zerod does not have it"},
{"optim_args", FOREIGN_OFF, .words = "{}", .why = "optimizers take no more than [optim] says"},
{"lr_scheduler", FOREIGN_CALL, .take = words_schedule, .absent = "cosine"},
{"cosine_min_lr_ratio warmup_steps warmup_ratio deepspeed", FOREIGN_CALL, .take = words_nothing},
{"cosine_constant_lr_ratio", FOREIGN_OFF, .words = "", .why = "no such schedule here; the nearest is wsd"},
{"learning_rate", FOREIGN_KEY, "optim.learning_rate"},
{"embedding_lr embedding_lr_scale", FOREIGN_OFF, .words = "", .why = "one learning rate for all"},
{"weight_decay", FOREIGN_KEY, "optim.weight_decay", .absent = "0.0"},
{"adam_beta1", FOREIGN_KEY, "optim.adam_beta1", .absent = "0.9"},
{"adam_beta2", FOREIGN_KEY, "optim.adam_beta2", .absent = "0.999"},
{"adam_epsilon", FOREIGN_KEY, "optim.adam_epsilon", .absent = "1e-8"},
{"max_grad_norm", FOREIGN_KEY, "optim.max_grad_norm", .absent = "1.0"},
{"bf16", FOREIGN_CALL, .take = take_type, .absent = "auto"},
{"bfloat16 fp16 float16", FOREIGN_CALL, .take = take_type_if_true},
{"tf32", FOREIGN_KEY, "train.tf32"},
{"fp8", FOREIGN_OFF, .words = "false", .why = "zerod computes in bf16, fp16 or fp32"},
{"gradient_checkpointing", FOREIGN_CALL, .take = words_checkpointing, .absent = "false"},
{"activation_offloading", FOREIGN_KEY, "offload.activations", "true=cpu|false="},
{"s2_attention", FOREIGN_OFF, .words = "false", .why = "attention sees the whole sample"},
{"plugins", FOREIGN_CALL, .take = take_plugins},
{"device_map", FOREIGN_NOTE, .why = "zero.stage and [offload] say where things lie"},
{"max_memory gpu_memory_limit", FOREIGN_NOTE, .why = "device.memory_limit"},
{"sequence_parallel_degree context_parallel_size", FOREIGN_OFF, .words = "0|1", .why = "sequences are not cut over ranks"},
{"tensor_parallel_size", FOREIGN_OFF, .words = "0|1", .why = "matrices are not cut over ranks"},
{"fsdp", FOREIGN_CALL, .take = words_fsdp},
{"fsdp_version fsdp_config*", FOREIGN_NOTE, .why = "how FSDP wraps and gathers; units are whole layers"},
{"local_rank", FOREIGN_NOTE, .why = "MPI says it"},
{"world_size", FOREIGN_NOTE, .why = "the number of ranks: mpirun -np N zerod"},

{"output_dir", FOREIGN_KEY, "job.output_dir"},
{"seed", FOREIGN_KEY, "job.seed", .absent = "42"},
{"evals_per_epoch saves_per_epoch", FOREIGN_CALL, .take = take_per_epoch},
{"eval_steps", FOREIGN_KEY, "eval.eval_steps"},
{"eval_strategy evaluation_strategy save_strategy", FOREIGN_CALL, .take = take_strategy},
{"eval_table_size eval_max_new_tokens eval_causal_lm_metrics do_causal_lm_eval do_bench_eval save_first_step "
 "include_tokens_per_second debug",
 FOREIGN_NOTE, OUTPUT},
{"save_steps", FOREIGN_KEY, "checkpoint.save_steps"},
{"save_total_limit", FOREIGN_KEY, "checkpoint.save_total_limit", "null=0", .absent = "null"},
{"save_only_model", FOREIGN_KEY, "checkpoint.save_only_model"},
{"save_safetensors", FOREIGN_NOTE, .why = "always"},
{"load_best_model_at_end", FOREIGN_KEY, "checkpoint.load_best_model_at_end"},
{"metric_for_best_model", FOREIGN_KEY, "checkpoint.metric_for_best_model", "loss=eval_loss"},
{"greater_is_better", FOREIGN_KEY, "checkpoint.greater_is_better"},
{"early_stopping_patience", FOREIGN_KEY, "guard.early_stopping_patience", "="},
{"loss_watchdog_threshold", FOREIGN_KEY, "guard.loss_watchdog_threshold"},
{"loss_watchdog_patience", FOREIGN_KEY, "guard.loss_watchdog_patience"},
{"resume_from_checkpoint", FOREIGN_OFF, .words = "", .why = "checkpoints of other trainers are not read; a run goes on from its own (run.resume)"},
{"auto_resume_from_checkpoints", FOREIGN_NOTE, .why = "run.resume = \"auto\""},
{"logging_steps", FOREIGN_KEY, "log.logging_steps"},
{"use_tensorboard", FOREIGN_KEY, "report.tensorboard"},
{"wandb* mlflow* use_mlflow use_wandb use_comet comet*", FOREIGN_NOTE, .why = "reports to others; here files and a page"},
};
#undef OUTPUT
#undef SPEED
#undef LOADER
#undef HUB
#undef CONFIG
/* clang-format on */

static const struct foreign_default defaults[] = {
        {"optim.min_lr_ratio", "0.0"},
};

const struct foreign_format foreign_axolotl = {
        .name = "an axolotl file",
        .option = "axolotl",
        .is_yaml = true,
        .rows = rows,
        .row_count = sizeof rows / sizeof rows[0],
        .defaults = defaults,
        .default_count = sizeof defaults / sizeof defaults[0],
        .finish = finish,
};
