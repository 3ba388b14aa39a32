/* deepspeed.c - ds_config.json, key by key. */
#include "daemon/init/foreign.h"

#include <string.h>

/* --- optimizer and schedule ----------------------------------------------- */

/* Adam with decoupled weight decay (adam_w_mode, their default) is AdamW. */
static void take_optimizer(
        struct foreign *foreign, const char *name, const json_t *value)
{
    static const char *const names[][2] = {
            {"adam", "adamw"},
            {"adamw", "adamw"},
            {"fusedadam", "adamw"},
            {"lion", "lion"},
            {"sgd", "sgd"}};
    const char *type = json_string_value(value);
    if (type && !strcasecmp(type, "adam") &&
        foreign_is(foreign, "optimizer.params.adam_w_mode", false) &&
        json_number_value(
                foreign_get(foreign, "optimizer.params.weight_decay")) != 0) {
        foreign_refuse(
                foreign, name, value,
                "adam_w_mode = false adds weight decay to the gradient; here "
                "it is decoupled (AdamW)");
        return;
    }
    for (size_t i = 0; type && i < sizeof names / sizeof names[0]; i++)
        if (!strcasecmp(type, names[i][0])) {
            foreign_set(foreign, name, "optim.name", json_string(names[i][1]));
            return;
        }
    foreign_refuse(
            foreign, name, value,
            "no such optimizer here: adamw, adam_mini, lion and sgd are");
}

static void take_schedule(
        struct foreign *foreign, const char *name, const json_t *value)
{
    static const struct {
        const char *theirs, *ours, *floor;
    } types[] = {
            {"WarmupLR", "constant", NULL},
            {"WarmupDecayLR", "linear", "0"},
            {"WarmupCosineLR", "cosine", NULL}};
    const char *type = json_string_value(value);
    for (size_t i = 0; type && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].theirs) != 0)
            continue;
        foreign_set(
                foreign, name, "optim.lr_scheduler_type",
                json_string(types[i].ours));
        if (types[i].floor)
            foreign_set(foreign, name, "optim.min_lr_ratio", json_real(0));
        return;
    }
    foreign_refuse(
            foreign, name, value,
            "no such schedule here: WarmupLR, WarmupDecayLR and "
            "WarmupCosineLR have one");
}

/* It is the rate of the run, whatever the optimizer says. */
static void take_warmup_max(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *type =
            json_string_value(foreign_get(foreign, "scheduler.type"));
    bool is_floor = type && !strcmp(type, "WarmupCosineLR");
    if (is_floor)
        draft_note(
                foreign->draft, name, "WarmupCosineLR takes the optimizer's");
    else if (!foreign_is_open(value)) {
        draft_replace(
                foreign->draft, "optim.learning_rate", json_deep_copy(value),
                foreign->is_default ? "warmup_max_lr, their default" : name);
        if (foreign_get(foreign, "optimizer.params.lr"))
            draft_note(
                    foreign->draft, "optimizer.params.lr",
                    "overridden by warmup_max_lr");
    }
}

/* Their warm-up grows with the logarithm of the step unless it is linear. */
static void take_warmup_type(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *type = json_string_value(value);
    draft_note(
            foreign->draft, name,
            type && !strcmp(type, "linear")
                    ? "the warm-up is linear, as here"
                    : "their warm-up is logarithmic; here it is linear, of as "
                      "many steps to the same rate");
}

/* --- where things lie ----------------------------------------------------- */

static void set_tier(
        struct foreign *foreign, const char *name, const char *key,
        const char *tier)
{
    foreign_set(foreign, name, key, json_string(tier));
}

static void take_offload_optimizer(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *tier = json_string_value(value);
    if (foreign_is_open(value))
        return;
    if (tier && (!strcmp(tier, "cpu") || !strcmp(tier, "nvme") ||
                 !strcmp(tier, "none")))
        set_tier(foreign, name, "offload.optimizer", tier);
    else
        foreign_refuse(foreign, name, value, "it is none, cpu or nvme");
}

/* Parameters leave the device at stage 3 alone, and there with the optimizer.
 */
static void take_offload_params(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *tier = json_string_value(value);
    const json_t *stage = foreign_get(foreign, "zero_optimization.stage");
    if (foreign_is_open(value) || (tier && !strcmp(tier, "none"))) {
        draft_note(foreign->draft, name, "on the device, as here");
        return;
    }
    if (!tier || (strcmp(tier, "cpu") != 0 && strcmp(tier, "nvme") != 0)) {
        foreign_refuse(foreign, name, value, "it is none, cpu or nvme");
        return;
    }
    if (json_integer_value(stage) != 3) {
        draft_note(
                foreign->draft, name,
                "DeepSpeed offloads parameters at stage 3 alone");
        return;
    }
    set_tier(foreign, name, "offload.params", tier);
    const json_t *optimizer =
            foreign_get(foreign, "zero_optimization.offload_optimizer.device");
    const char *at = json_string_value(optimizer);
    bool is_with = at && (!strcmp(at, tier) || !strcmp(at, "nvme"));
    if (!is_with && at && strcmp(at, "none") != 0 && strcmp(at, "auto") != 0)
        foreign_refuse(
                foreign, name, value,
                "parameters on NVMe go with optimizer states on NVMe here: "
                "offload_optimizer.device = nvme, or offload_param.device = "
                "cpu");
    else if (!is_with)
        draft_replace(
                foreign->draft, "offload.optimizer", json_string(tier),
                "with the parameters: zerod offloads both or the optimizer");
}

/* fp32 where neither bf16 nor fp16 is enabled. */
static void take_bf16(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_true(value))
        foreign_set(foreign, name, "train.dtype", json_string("bf16"));
}

static void take_fp16(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_true(value))
        foreign_set(foreign, name, "train.dtype", json_string("fp16"));
}

static void take_fp16_number(
        struct foreign *foreign, const char *name, const json_t *value)
{
    char key[100];
    if (!foreign_is(foreign, "fp16.enabled", true) || foreign_is_open(value)) {
        draft_note(foreign->draft, name, "fp16 is not enabled here");
        return;
    }
    snprintf(key, sizeof key, "train.%s", name);
    foreign_set(foreign, name, key, json_deep_copy(value));
}

static void take_pin(
        struct foreign *foreign, const char *name, const json_t *value)
{
    draft_note(
            foreign->draft, name,
            json_is_true(value) ? "pinned as far as it is copied through"
                                : "zerod pins what copies pass through");
}

static void take_old_offload(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (!json_is_true(value))
        return;
    if (strstr(name, "params"))
        set_tier(foreign, name, "offload.params", "cpu");
    set_tier(foreign, name, "offload.optimizer", "cpu");
}

/* "enabled" of what would change training. */
static void take_feature(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const json_t *enabled = json_object_get(value, "enabled");
    if (json_is_false(value) ||
        (json_is_object(value) && (!enabled || json_is_false(enabled)) &&
         strcmp(name, "sparse_attention") != 0 &&
         strcmp(name, "compression_training") != 0))
        draft_note(foreign->draft, name, "off, as here");
    else
        foreign_refuse(
                foreign, name, value,
                "zerod does not have it, and without it training would "
                "change");
}

/* Their stock file prints every 2000 steps. */
static void finish_prints(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    const json_t *line = json_object_get(draft->values, "log.logging_steps");
    const json_t *all = json_object_get(draft->values, "train.max_steps");
    double every = json_number_value(json_object_get(line, "value"));
    double steps = json_number_value(json_object_get(all, "value"));
    bool is_long = steps > 0 ? every > steps : every >= 2000;
    if (line && is_long)
        draft_replace(
                draft, "log.logging_steps", json_real(0.1),
                "steps_per_print, capped: ten times a run");
}

static void finish_schedule(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    bool has_schedule = foreign_get(foreign, "scheduler.type") != NULL;
    if (!has_schedule)
        draft_set(
                draft, "optim.lr_scheduler_type", json_string("constant"),
                "there is no scheduler");
    if (!has_schedule)
        draft_set(
                draft, "optim.warmup_steps", json_integer(0),
                "there is no scheduler");
    const char *type = draft_text(draft, "optim.lr_scheduler_type");
    if (has_schedule && strcmp(type ? type : "", "cosine") != 0 &&
        !foreign_get(foreign, "scheduler.params.warmup_type"))
        take_warmup_type(foreign, "scheduler.params.warmup_type", NULL);
}

static void finish(struct foreign *foreign)
{
    struct draft *draft = foreign->draft;
    static const char *const types[] = {
            "bf16.enabled", "bfloat16.enabled", "fp16.enabled"};
    bool is_open = false;
    for (int i = 0; i < 3; i++)
        is_open = is_open || (foreign_get(foreign, types[i]) &&
                              foreign_is_open(foreign_get(foreign, types[i])));
    if (!draft_has(draft, "train.dtype") && !is_open)
        draft_set(
                draft, "train.dtype", json_string("fp32"),
                "neither bf16 nor fp16 is enabled");
    finish_prints(foreign);
    if (foreign_get(foreign, "optimizer.type"))
        finish_schedule(foreign);
    else
        draft_say(
                draft, "%s names no optimizer: [optim] is zerod's.",
                foreign->path);
}

/* clang-format off */
#define Z "zero_optimization."
#define OPTIMIZER(theirs) .absent = theirs, .when = "optimizer.type"
static const struct foreign_row rows[] = {
{"train_batch_size", FOREIGN_KEY, "train.global_batch_size"},
{"train_micro_batch_size_per_gpu", FOREIGN_KEY, "train.per_device_train_batch_size"},
{"gradient_accumulation_steps", FOREIGN_KEY, "train.gradient_accumulation_steps"},
{"gradient_clipping", FOREIGN_KEY, "optim.max_grad_norm", .absent = "1.0"},
{"seed", FOREIGN_KEY, "job.seed"},
{"steps_per_print", FOREIGN_KEY, "log.logging_steps", "inf="},
{"wall_clock_breakdown", FOREIGN_KEY, "log.step_breakdown"},
{"bf16.enabled bfloat16.enabled", FOREIGN_CALL, .take = take_bf16},
{"fp16.enabled", FOREIGN_CALL, .take = take_fp16},
{"fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.min_loss_scale", FOREIGN_CALL, .take = take_fp16_number},
{"fp16.consecutive_hysteresis", FOREIGN_OFF, .words = "false", .why = "good steps give back hysteresis only at a whole window here"},
{"fp16.fp16_master_weights_and_grads", FOREIGN_OFF, .words = "false", .why = "masters of fp16 are fp32 here"},
{"fp16.auto_cast", FOREIGN_NOTE, .why = "inputs are token ids"},
{"fp16.fp16_opt_level fp16.opt_level", FOREIGN_NOTE, .why = "of apex"},
{"bf16.immediate_grad_update", FOREIGN_NOTE, .why = "when gradients are added is zerod's own affair"},
{"bf16.check_grad_overflow", FOREIGN_NOTE, .why = "every step is checked"},
{"bf16.bf16_master_weights_and_grads", FOREIGN_OFF, .words = "false", .why = "the nearest is optim.master = \"none\", which rounds stochastically"},
{"bf16.bf16_optimizer_states", FOREIGN_OFF, .words = "false", .why = "the nearest is optim.state_dtype = \"bf16\""},
{"data_types.grad_accum_dtype", FOREIGN_NOTE, .why = "gradients of several micro-batches are added up in fp32"},
{"communication_data_type", FOREIGN_WORD, "comm.reduce_dtype", "fp32=fp32|fp16=compute|bf16=compute|bfp16=compute|bfloat16=compute"},
{"seq_parallel_communication_data_type", FOREIGN_NOTE, .why = "sequences are not cut over ranks"},
{"fp32_allreduce", FOREIGN_WORD, "comm.reduce_dtype", "true=fp32|false="},
{"prescale_gradients gradient_predivide_factor", FOREIGN_NOTE, .why = "sums are fp32 and need no scale"},
{"sparse_gradients", FOREIGN_OFF, .words = "false", .why = "gradients of embeddings are dense"},
{"disable_allgather", FOREIGN_NOTE, .why = "a detail of its collectives"},
{"dump_state memory_breakdown timers* monitor_config*", FOREIGN_NOTE, .why = "output only"},
{"zero_allow_untested_optimizer", FOREIGN_NOTE, .why = "every optimizer here is tested under every stage"},
{"zero_force_ds_cpu_optimizer", FOREIGN_NOTE, .why = "updates on the host are the optimizer's own bits"},

{"optimizer.type", FOREIGN_CALL, .take = take_optimizer},
{Z "allgather_sequential", FOREIGN_NOTE, .why = "a detail of its collectives"},
{Z "use_all_reduce_for_fetch_params", FOREIGN_NOTE, .why = "a detail of its collectives"},
{Z "compute_grad_norm", FOREIGN_NOTE, .why = "the norm is always computed"},
{Z "enable_sanity_checks", FOREIGN_NOTE, .why = "output only"},
{Z "override_module_apply", FOREIGN_NOTE, .why = "how it makes modules"},
{Z "parameter_alignment", FOREIGN_NOTE, .why = "memory is planned"},
{Z "pipeline_loading_checkpoint", FOREIGN_NOTE, .why = "checkpoints here are of zerod's form"},
{Z "save_muon_momentum_buffer_in_memory", FOREIGN_OFF, .words = "false", .why = "zerod does not have Muon"},
{"optimizer.params.set_grad_none optimizer.legacy_fusion optimizer.params.torch_adam optimizer.params.fused graph_harvesting", FOREIGN_NOTE, .why = "an implementation of the same"},
{"optimizer.params.lr", FOREIGN_KEY, "optim.learning_rate", OPTIMIZER("1e-3")},
{"optimizer.params.betas", FOREIGN_CALL, .take = foreign_take_betas, OPTIMIZER("[0.9, 0.999]")},
{"optimizer.params.eps", FOREIGN_KEY, "optim.adam_epsilon", OPTIMIZER("1e-8")},
{"optimizer.params.weight_decay", FOREIGN_KEY, "optim.weight_decay", OPTIMIZER("0.0")},
{"optimizer.params.momentum", FOREIGN_KEY, "optim.momentum", .absent = "0.0", .when = "optimizer.type=SGD"},
{"optimizer.params.nesterov", FOREIGN_OFF, .words = "false", .why = "sgd has no Nesterov momentum here"},
{"optimizer.params.dampening", FOREIGN_OFF, .words = "0|0.0", .why = "sgd has no dampening here"},
{"optimizer.params.amsgrad", FOREIGN_OFF, .words = "false", .why = "zerod has no AMSGrad"},
{"optimizer.params.bias_correction", FOREIGN_OFF, .words = "true", .why = "AdamW corrects its moments here"},
{"optimizer.params.adam_w_mode", FOREIGN_NOTE, .why = "weight decay is decoupled: AdamW"},

{"scheduler.type", FOREIGN_CALL, .take = take_schedule},
{"scheduler.params.warmup_min_lr scheduler.params.warmup_min_ratio", FOREIGN_OFF, .words = "0|0.0", .why = "a warm-up begins near 0 here"},
{"scheduler.params.warmup_max_lr", FOREIGN_CALL, .take = take_warmup_max, .absent = "1e-3", .when = "scheduler.type=WarmupDecayLR"},
{"scheduler.params.warmup_num_steps", FOREIGN_KEY, "optim.warmup_steps", .absent = "1000", .when = "scheduler.type"},
{"scheduler.params.warmup_type", FOREIGN_CALL, .take = take_warmup_type},
{"scheduler.params.total_num_steps", FOREIGN_KEY, "train.max_steps"},
{"scheduler.params.cos_min_ratio", FOREIGN_KEY, "optim.min_lr_ratio", .absent = "1e-4", .when = "scheduler.type=WarmupCosineLR"},
{"scheduler.params.last_batch_iteration", FOREIGN_OFF, .words = "-1", .why = "a schedule begins at its beginning; a checkpoint knows where it is"},

{Z "stage", FOREIGN_KEY, "zero.stage", .absent = "0"},
{Z "overlap_comm", FOREIGN_KEY, "zero.overlap_comm"},
{Z "reduce_bucket_size", FOREIGN_KEY, "zero.reduce_bucket_size"},
{Z "allgather_bucket_size", FOREIGN_KEY, "zero.allgather_bucket_size"},
{Z "sub_group_size", FOREIGN_KEY, "zero.sub_group_size"},
{Z "round_robin_gradients", FOREIGN_KEY, "zero.round_robin_gradients"},
{Z "stage3_prefetch_bucket_size", FOREIGN_KEY, "zero.prefetch_bucket_size"},
{Z "prefetch_bucket_size", FOREIGN_KEY, "zero.prefetch_bucket_size"},
{Z "stage3_param_persistence_threshold", FOREIGN_KEY, "zero.param_persistence_threshold"},
{Z "param_persistence_threshold", FOREIGN_KEY, "zero.param_persistence_threshold"},
{Z "stage3_max_live_parameters", FOREIGN_KEY, "zero.max_live_parameters"},
{Z "max_live_parameters", FOREIGN_KEY, "zero.max_live_parameters"},
{Z "stage3_max_reuse_distance", FOREIGN_KEY, "zero.max_reuse_distance"},
{Z "max_reuse_distance", FOREIGN_KEY, "zero.max_reuse_distance"},
{Z "model_persistence_threshold", FOREIGN_NOTE, .why = "param_persistence_threshold alone decides"},
{Z "stage3_model_persistence_threshold", FOREIGN_NOTE, .why = "param_persistence_threshold alone decides"},
{Z "offload_optimizer.device", FOREIGN_CALL, .take = take_offload_optimizer},
{Z "offload_optimizer.nvme_path", FOREIGN_KEY, "offload.nvme_path"},
{Z "offload_optimizer.pin_memory", FOREIGN_CALL, .take = take_pin},
{Z "offload_optimizer.ratio", FOREIGN_NOTE, .why = "all states are on the host, or paged (optim.name)"},
{Z "offload_optimizer.*", FOREIGN_NOTE, .why = "buffers are planned here"},
{Z "offload_param.device", FOREIGN_CALL, .take = take_offload_params},
{Z "offload_param.nvme_path", FOREIGN_KEY, "offload.nvme_path"},
{Z "offload_param.pin_memory", FOREIGN_CALL, .take = take_pin},
{Z "offload_param.*", FOREIGN_NOTE, .why = "buffers are planned here"},
{Z "cpu_offload", FOREIGN_CALL, .take = take_old_offload},
{Z "cpu_offload_params", FOREIGN_CALL, .take = take_old_offload},
{Z "cpu_offload_use_pin_memory", FOREIGN_CALL, .take = take_pin},
{Z "contiguous_gradients", FOREIGN_NOTE, .why = "gradients lie in planned memory"},
{Z "reduce_scatter", FOREIGN_NOTE, .why = "always"},
{Z "allgather_partitions", FOREIGN_NOTE, .why = "always"},
{Z "load_from_fp32_weights", FOREIGN_NOTE, .why = "checkpoints hold the masters"},
{Z "use_multi_rank_bucket_allreduce", FOREIGN_NOTE, .why = "a detail of its collectives"},
{Z "elastic_checkpoint", FOREIGN_NOTE, .why = "checkpoints load at any number of ranks"},
{Z "ignore_unused_parameters", FOREIGN_NOTE, .why = "every parameter is used"},
{Z "legacy_stage1", FOREIGN_NOTE, .why = "an implementation of the same"},
{Z "memory_efficient_linear", FOREIGN_NOTE, .why = "an implementation of the same"},
{Z "log_trace_cache_warnings", FOREIGN_NOTE, .why = "output only"},
{Z "module_granularity_threshold", FOREIGN_NOTE, .why = "units are whole layers"},
{Z "stage3_gather_16bit_weights_on_model_save", FOREIGN_NOTE, .why = "the end writes the whole model (checkpoint.export)"},
{Z "stage3_gather_fp16_weights_on_model_save", FOREIGN_NOTE, .why = "the end writes the whole model (checkpoint.export)"},
{Z "gather_16bit_weights_on_model_save", FOREIGN_NOTE, .why = "the end writes the whole model (checkpoint.export)"},
{Z "zero_quantized_weights", FOREIGN_OFF, .words = "false", .why = "weights are sent as they are (ZeRO++)"},
{Z "zero_quantized_nontrainable_weights", FOREIGN_OFF, .words = "false", .why = "weights are sent as they are (ZeRO++)"},
{Z "zero_quantized_gradients", FOREIGN_OFF, .words = "false", .why = "gradients are sent as they are (ZeRO++)"},
{Z "zeropp_loco_param", FOREIGN_OFF, .words = "null", .why = "gradients are sent as they are (ZeRO++)"},
{Z "zero_hpz_partition_size", FOREIGN_NOTE, .why = "a copy within a node saves traffic alone; comm.hierarchical does"},
{Z "mics_shard_size", FOREIGN_NOTE, .why = "over how many ranks is cut changes memory and traffic alone"},
{Z "mics_hierarchical_params_gather", FOREIGN_NOTE, .why = "comm.hierarchical"},
{Z "zenflow", FOREIGN_OFF, .words = "null", .why = "updates are not delayed here (ZenFlow)"},

{"aio.block_size", FOREIGN_KEY, "aio.block_size"},
{"aio.queue_depth", FOREIGN_KEY, "aio.queue_depth"},
{"aio.thread_count", FOREIGN_KEY, "aio.intra_op_parallelism"},
{"aio.intra_op_parallelism", FOREIGN_KEY, "aio.intra_op_parallelism"},
{"aio.single_submit", FOREIGN_KEY, "aio.single_submit"},
{"aio.overlap_events", FOREIGN_KEY, "aio.overlap_events"},
{"aio.use_gds", FOREIGN_NOTE, .why = "files go through the host"},

{"activation_checkpointing*", FOREIGN_NOTE, .why = "of models that call it; train.gradient_checkpointing says what is computed again"},
{"tensorboard.enabled", FOREIGN_KEY, "report.tensorboard"},
{"tensorboard.*", FOREIGN_NOTE, .why = "the file lies in job.output_dir"},
{"wandb* comet*", FOREIGN_NOTE, .why = "reports to others; here files and a page"},
{"csv_monitor*", FOREIGN_NOTE, .why = "metrics.jsonl has it"},
{"flops_profiler*", FOREIGN_NOTE, .why = "log.step_breakdown and zerod plan tell"},
{"comms_logger*", FOREIGN_NOTE, .why = "metrics.jsonl counts what is sent"},
{"checkpoint.* nebula*", FOREIGN_NOTE, .why = "checkpoints here are of zerod's form"},
{"compile*", FOREIGN_NOTE, .why = "nothing is compiled at run time"},
{"use_node_local_storage", FOREIGN_NOTE, .why = "checkpoints go to job.output_dir"},
{"use_data_before_expert_parallel_", FOREIGN_NOTE, .why = "there are no experts"},
{"sequence_parallel_size", FOREIGN_OFF, .words = "0|1", .why = "sequences are not cut over ranks"},
{"tensor_parallel.autotp_size", FOREIGN_OFF, .words = "0|1", .why = "matrices are not cut over ranks"},
{"pipeline", FOREIGN_OFF, .words = "false|{}", .why = "layers are not cut over ranks"},
{"amp torch_autocast elasticity sparse_attention compression_training curriculum_learning data_efficiency "
 "progressive_layer_drop eigenvalue quantize_training weight_quantization hybrid_engine",
 FOREIGN_CALL, .take = take_feature},
{"autotuning", FOREIGN_NOTE, .why = "zerod plan --fit, without trial runs"},
};
#undef Z
#undef OPTIMIZER
/* clang-format on */

const struct foreign_format foreign_deepspeed = {
        .name = "a DeepSpeed configuration",
        .option = "deepspeed",
        .rows = rows,
        .row_count = sizeof rows / sizeof rows[0],
        .finish = finish,
};
