/* torchtune.c - torchtune's configurations (0.6), key by key. */
#include "daemon/init/trainer_words.h"

#include <string.h>

/* torchtune.models.llama3_2.lora_llama3_2_1b: how it trains is in the name. */
static void take_model(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *model = json_string_value(value);
    bool quantizes = model && strstr(model, ".qlora_");
    if (!model || (!quantizes && !strstr(model, ".lora_"))) {
        draft_note(foreign->draft, name, "the model's folder says it");
        return;
    }
    foreign_set(foreign, name, "lora.enabled", json_true());
    if (quantizes)
        foreign_set(foreign, name, "lora.quantize_base", json_string("nf4"));
}

/* Names of their attention modules; those of the MLP follow. */
static void take_modules(
        struct foreign *foreign, const char *name, const json_t *value)
{
    static const char *const mlp[] = {"gate_proj", "up_proj", "down_proj"};
    json_t *list = json_array();
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)value, i, item)
    {
        const char *module = json_string_value(item);
        json_array_append_new(
                list,
                json_string(
                        module && strcmp(module, "output_proj") == 0 ? "o_proj"
                                                                     : module));
    }
    for (i = 0; i < 3 && foreign_is(foreign, "model.apply_lora_to_mlp", true);
         i++)
        json_array_append_new(list, json_string(mlp[i]));
    foreign_set(foreign, name, "lora.target_modules", list);
}

/* What a tokenizer of theirs makes of a record has other tokens. */
static void take_dataset(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_array_size(foreign->draft->train))
        draft_note(foreign->draft, name, "overridden by --data");
    else
        foreign_refuse(
                foreign, name, value,
                "its prompts are not converted: write the records as "
                "\"messages\" and name the file with --data");
}

static void finish(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    if (!foreign_get(foreign, "lr_scheduler._component_")) {
        draft_set(
                draft, "optim.lr_scheduler_type", json_string("constant"),
                "there is no lr_scheduler");
        draft_set(
                draft, "optim.warmup_steps", json_integer(0),
                "there is no lr_scheduler");
    }
    draft_set(draft, "eval.eval_strategy", json_string("no"), "their default");
}

/* clang-format off */
#define LORA(theirs) .absent = theirs, .when = "model.lora_rank"
static const struct foreign_row rows[] = {
{"output_dir", FOREIGN_KEY, "job.output_dir"},
{"seed", FOREIGN_KEY, "job.seed"},
{"shuffle", FOREIGN_KEY, "data.shuffle"},
{"batch_size", FOREIGN_KEY, "train.per_device_train_batch_size"},
{"gradient_accumulation_steps", FOREIGN_KEY, "train.gradient_accumulation_steps", .absent = "1"},
{"epochs", FOREIGN_KEY, "train.num_train_epochs"},
{"max_steps_per_epoch", FOREIGN_OFF, .words = "", .why = "train.max_steps counts the steps of the whole run"},
{"clip_grad_norm", FOREIGN_KEY, "optim.max_grad_norm", "null=0", .absent = "null"},
{"dtype", FOREIGN_KEY, "train.dtype"},
{"device", FOREIGN_WORD, "device.backend", "cuda=|cpu=cpu", .why = "zerod computes on CPUs and NVIDIA's GPUs"},
{"enable_activation_checkpointing", FOREIGN_WORD, "train.gradient_checkpointing", "true=full|false=none", .absent = "false"},
{"enable_activation_offloading", FOREIGN_WORD, "offload.activations", "true=cpu|false="},
{"fsdp_cpu_offload", FOREIGN_WORD, "offload.optimizer", "true=cpu|false="},
{"compile optimizer_in_bwd fsdp_reshard_after_forward custom_sharded_layers use_* memory_efficient_fsdp_wrap optimizer.fused",
 FOREIGN_NOTE, .why = "an implementation of the same"},
{"tensor_parallel_dim data_parallel_shard_dim data_parallel_replicate_dim context_parallel_dim", FOREIGN_OFF, .words = "1|-1", .why = "ranks shard states alone (zero.stage)"},

{"model._component_", FOREIGN_CALL, .take = take_model},
{"model.lora_attn_modules", FOREIGN_CALL, .take = take_modules},
{"model.apply_lora_to_mlp", FOREIGN_NOTE, .why = "in lora.target_modules"},
{"model.apply_lora_to_output", FOREIGN_OFF, .words = "false", .why = "the head gets no adapter"},
{"model.lora_rank", FOREIGN_KEY, "lora.r"},
{"model.lora_alpha", FOREIGN_KEY, "lora.lora_alpha"},
{"model.lora_dropout", FOREIGN_KEY, "lora.lora_dropout", LORA("0.0")},
{"model.use_dora", FOREIGN_KEY, "lora.use_dora"},
{"model.quantize_base", FOREIGN_WORD, "lora.quantize_base", "true=nf4|false="},

{"tokenizer.max_seq_len", FOREIGN_KEY, "data.cutoff_len"},
{"tokenizer.prompt_template", FOREIGN_OFF, .words = "", .why = "data.chat_template names one of zerod's"},
{"tokenizer.*", FOREIGN_NOTE, .why = "the model's folder has its tokenizer"},
{"dataset.packed", FOREIGN_KEY, "data.packing", .absent = "false"},
{"dataset.train_on_input", FOREIGN_WORD, "data.train_on", "true=all|false=assistant"},
{"dataset._component_", FOREIGN_CALL, .take = take_dataset},
{"dataset.source dataset.split dataset.data_files dataset.column dataset.column_map dataset.conversation_style dataset.conversation_column", FOREIGN_NOTE, .why = "overridden by --data"},

{"optimizer._component_", FOREIGN_WORD, "optim.name", "torch.optim.AdamW=adamw|bitsandbytes.optim.AdamW=adamw|bitsandbytes.optim.AdamW8bit=adamw_8bit|bitsandbytes.optim.PagedAdamW=paged_adamw_32bit|bitsandbytes.optim.PagedAdamW8bit=paged_adamw_8bit|torch.optim.SGD=sgd"},
{"optimizer.lr", FOREIGN_KEY, "optim.learning_rate"},
{"optimizer.weight_decay", FOREIGN_KEY, "optim.weight_decay", .absent = "0.0", .when = "optimizer._component_=torch.optim.SGD"},
{"optimizer.weight_decay", FOREIGN_KEY, "optim.weight_decay", .absent = "0.01"},
{"optimizer.eps", FOREIGN_KEY, "optim.adam_epsilon", .absent = "1e-8"},
{"optimizer.betas", FOREIGN_CALL, .take = foreign_take_betas, .absent = "[0.9, 0.999]"},
{"optimizer.momentum", FOREIGN_KEY, "optim.momentum", .absent = "0.0", .when = "optimizer._component_=torch.optim.SGD"},
{"lr_scheduler._component_", FOREIGN_WORD, "optim.lr_scheduler_type", "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup=cosine|torchtune.modules.get_cosine_schedule_with_warmup=cosine", .why = "of their schedules zerod has the cosine with warm-up"},
{"lr_scheduler.num_warmup_steps", FOREIGN_KEY, "optim.warmup_steps"},
{"loss._component_", FOREIGN_OFF, .words = "torchtune.modules.loss.CEWithChunkedOutputLoss|torchtune.modules.loss.LinearCrossEntropyLoss|torch.nn.CrossEntropyLoss", .why = "the loss is cross-entropy"},

{"checkpointer.checkpoint_dir", FOREIGN_CALL, .take = words_model},
{"checkpointer.recipe_checkpoint checkpointer.adapter_checkpoint", FOREIGN_OFF, .words = "", .why = "checkpoints of other trainers are not read"},
{"checkpointer.*", FOREIGN_NOTE, .why = "the model's folder, and job.output_dir, say it"},
{"resume_from_checkpoint", FOREIGN_OFF, .words = "false", .why = "checkpoints of other trainers are not read; a run goes on from its own (run.resume)"},
{"save_adapter_weights_only", FOREIGN_NOTE, .why = "checkpoint.export"},
{"log_every_n_steps", FOREIGN_KEY, "log.logging_steps"},
{"metric_logger* log_peak_memory_stats log_level profiler* cudnn_deterministic_mode enable_async_checkpointing", FOREIGN_NOTE, .why = "output only"},
};
#undef LORA
/* clang-format on */

static const struct foreign_default defaults[] = {
        {"optim.min_lr_ratio", "0.0"},
};

const struct foreign_format foreign_torchtune = {
        .name = "a torchtune configuration",
        .option = "torchtune",
        .is_yaml = true,
        .rows = rows,
        .row_count = sizeof rows / sizeof rows[0],
        .defaults = defaults,
        .default_count = sizeof defaults / sizeof defaults[0],
        .finish = finish,
};
