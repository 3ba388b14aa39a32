#include "daemon/report/report.h"

#include "base/log.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "model/files/config.h"
#include "optim/optimizers.h"
#include "train/checkpoint/checkpoint.h"
#include "train/plan/fit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Below 100,000 to the last digit, as sums and products have to add up. */
static const char *print_count(double value, char out[UNITS_TEXT])
{
    if (value < 1000 || value >= 1e5)
        return units_number(value, 3, out);
    snprintf(out, UNITS_TEXT, "%.0f", value);
    return out;
}
#define COUNT_TEXT(value) print_count((double)(value), (char[UNITS_TEXT]){""})

static void tell_adapters(const struct job_plan *plan)
{
    const json_t *targets =
            json_object_get(plan->adapter.json, "target_modules");
    ZD_FREED char *text = json_dumps(targets, JSON_ENCODE_ANY);
    zd_log_info(
            "  adapters %s, r %d on %.200s",
            plan->adapter.use_dora ? "DoRA" : "LoRA", plan->adapter.r,
            text ? text : "?");
}

static void tell_model(const struct train_banner *banner)
{
    const struct job_plan *plan = banner->plan;
    const char *format = job_plan_base_format(plan);
    const char *dtype = dtype_name(plan->zero.request.dtype);
    bool is_small = format && strcmp(format, dtype) != 0;
    char what[160];
    const char *total = REPORT_SHORT(plan->table.total);
    model_config_describe(&plan->config, what, sizeof what);
    if (plan->table.trainable == plan->table.total)
        zd_log_info(
                "  model    %s, %s parameters, %s", what, total,
                banner->resumed_from ? "weights of the checkpoint"
                : banner->job->model.init == MODEL_RANDOM ? "random weights"
                                                          : "pretrained");
    else /* embedding, head and norms are never quantized */
        zd_log_info(
                "  model    %s, %s parameters, %s of them trained, %s%s%sthe "
                "others in %s",
                what, total, REPORT_SHORT(plan->table.trainable),
                is_small ? "the layers' matrices in " : "",
                is_small ? format : "", is_small ? ", " : "", dtype);
    if (plan->table.adapters)
        tell_adapters(plan);
    if (plan->config.stored_rows)
        zd_log_info(
                "  vocabulary %d rows and %d new ones (their mean)",
                plan->config.stored_rows,
                plan->config.vocab_size - plan->config.stored_rows);
}

static void tell_ranks(const struct train_banner *banner)
{
    const struct arena_plan *arena = &banner->plan->arena;
    struct job_paged paged = job_plan_paged(banner->plan);
    zd_log_info(
            "  ranks    %d (%d on this host) x %d thread%s, ZeRO stage %d, "
            "%s",
            banner->world, banner->local_size, banner->threads,
            banner->threads == 1 ? "" : "s", banner->job->zero.stage,
            banner->kernels);
    struct mesh mesh = banner->plan->mesh;
    if (mesh.shard < mesh.world)
        zd_log_info(
                "  mesh     replicate %d x shard %d x cp %d x tp %d%s%s",
                mesh.replicate, mesh.shard, mesh.cp, mesh.tp,
                mesh.cp > 1 ? "; attention by " : "",
                mesh.cp > 1 ? job_plan_cp_comm(banner->plan) : "");
    bool has_disk = arena->bytes[ARENA_DISK] > 0;
    zd_log_info(
            "  memory   %s device + %s host%s%s%s per rank",
            UNITS_BYTES(plan_device_bytes(banner->plan)),
            UNITS_BYTES(plan_host_bytes(banner->plan)), has_disk ? " + " : "",
            has_disk ? UNITS_BYTES(arena->bytes[ARENA_DISK]) : "",
            has_disk ? " disk" : "");
    if (banner->plan->no_snapshot)
        zd_log_info(
                "  saves    training waits for them: %s",
                banner->plan->no_snapshot);
    if (!paged.host)
        return;
    zd_log_info(
            "  paged    %s of the states on the device, %s on the host",
            UNITS_BYTES(paged.device), UNITS_BYTES(paged.host));
}

/* Which passes over each of several sources the run makes, for the samples that
 * it takes. */
static void tell_sources(const struct train_banner *banner, double taken)
{
    const struct data_entry *entries = banner->job->data.train;
    int count = banner->data ? dataset_summary(banner->data).sources : 0;
    for (int i = 0; count > 1 && i < count; i++) {
        const struct dataset_source source = dataset_source(banner->data, i);
        char passes[80] = "not counted yet";
        if (source.samples)
            ZD_PRINT(
                    passes, "%s passes over %lld samples",
                    COUNT_TEXT(taken * source.share / (double)source.samples),
                    (long long)source.samples);
        zd_log_info(
                "  source   %.3g %% of the samples: %s, %s", 100 * source.share,
                entries[i].name[0] ? entries[i].name : entries[i].path, passes);
    }
}

static void tell_work(const struct train_banner *banner)
{
    const struct job_plan *plan = banner->plan;
    int samplers = mesh_samples(plan->mesh, 0).size;
    double taken =
            (double)banner->state->max_steps * (double)plan->global_batch;
    char sharers[40] = "";
    if (samplers < plan->world)
        ZD_PRINT(sharers, " of %d ranks", plan->world / samplers);
    zd_log_info(
            "  step     %d x %d x %d %s%s%s = %lld sample%s of %d tokens = "
            "%s tokens",
            plan->per_device, plan->accumulation, samplers,
            samplers == plan->world ? "rank" : "group",
            samplers == 1 ? "" : "s", sharers, (long long)plan->global_batch,
            plan->global_batch == 1 ? "" : "s", plan->shape.T,
            COUNT_TEXT(plan->global_batch * plan->shape.T));
    if (!banner->samples)
        zd_log_info(
                "  steps    %lld; the samples are not counted yet",
                (long long)banner->state->max_steps);
    else
        zd_log_info(
                "  steps    %lld, %s passes over %lld sample%s (%s tokens)",
                (long long)banner->state->max_steps,
                COUNT_TEXT(taken / (double)banner->samples),
                (long long)banner->samples, banner->samples == 1 ? "" : "s",
                COUNT_TEXT(banner->train_tokens));
    tell_sources(banner, taken);
    if (banner->eval_samples)
        zd_log_info(
                "  eval     %lld sample%s", (long long)banner->eval_samples,
                banner->eval_samples == 1 ? "" : "s");
}

static void tell_scale(const struct train_banner *banner)
{
    const struct fp16_options *fp16 = &banner->job->train.fp16;
    if (fp16->loss_scale > 0)
        zd_log_info(
                "  scale    loss x %.10g, fixed",
                banner->state->loss_scale.scale);
    else if (banner->state->loss_scale.scale > 0)
        zd_log_info(
                "  scale    loss x %.10g, doubled after %d good steps, halved "
                "by overflows, at least %.10g",
                banner->state->loss_scale.scale, fp16->loss_scale_window,
                fp16->min_loss_scale);
}

static void tell_text(const struct train_banner *banner)
{
    char chat[PATH_MAX + 32] = "";
    if (banner->chat_template)
        ZD_PRINT(chat, ", chat template %s", banner->chat_template);
    if (banner->eos >= 0)
        zd_log_info(
                "  text     %s, end of text %d%s", banner->tokenizer,
                banner->eos, chat);
    else /* the template ends a conversation's turns */
        zd_log_info(
                "  text     %s, no end-of-text token%s%s", banner->tokenizer,
                chat[0] ? "" : ": nothing separates documents", chat);
    model_config_warn(&banner->plan->config);
    if (banner->plan->config.has_dropout)
        zd_log_info("  note     the dropout in config.json is not applied");
}

/* --- what was chosen ------------------------------------------------------ */

/* The name as it was given, then as `validate --print` has it. */
static void tell_optimizer(const struct train_banner *banner)
{
    static const char *const states[] = {"fp32", "bf16", "8 bits"};
    const struct train_job *job = banner->job;
    const struct optim_options *optim = &job->optim;
    char name[PLAN_NAME_MAX];
    plan_optimizer_name(optim, name);
    bool is_other = job->optimizer && strcasecmp(job->optimizer, name) != 0;
    bool has_states = optimizer_has_states(optim);
    bool is_small = optim->state_type != OPTIM_STATE_FP32;
    zd_log_info(
            "  optim    %s%s%s, %s%s%s, %s", is_other ? job->optimizer : "",
            is_other ? ": " : "", name, has_states ? "states in " : "no states",
            has_states ? states[optim->state_type] : "",
            !has_states || !is_small  ? ""
            : optim->stable_embedding ? " (embeddings and small tensors fp32)"
                                      : " (small tensors fp32)",
            plan_masters_name(job->train.dtype, optim->master));
}

/* The layers' matmuls, and the modules that stay in the compute type. */
static void tell_fp8(const struct train_banner *banner)
{
    json_auto_t *fp8 = plan_fp8_json(banner->plan);
    struct text_buffer text = TEXT_BUFFER(400);
    JSON_EACH_AT(i, name, json_object_get(fp8, "bf16"))
        text_buffer_add(
                &text, "%s%s",
                i ? ", " : "; in bf16 still: ", json_string_value(name));
    if (fp8)
        zd_log_info(
                "  fp8      matmuls of the layers, %s%s",
                json_string_value(json_object_get(fp8, "mode")), text.out);
}

static void tell_offload(const struct train_banner *banner)
{
    static const char *const places[] = {"device", "host", "disk"};
    const struct offload_options *options = &banner->job->offload;
    const struct offload_facts *facts = &banner->offload;
    const struct job_plan *plan = banner->plan;
    const struct arena_span *moved =
            arena_plan_find(&plan->arena, "model.residuals");
    double share = plan->zero.request.offload.device_update;
    int threads = facts->worker_threads;
    bool is_on = options->optimizer != OFFLOAD_NONE;
    if (is_on)
        zd_log_info(
                "  offload  states on the %s, parameters on the %s; updates by "
                "%d thread%s, %s",
                places[options->optimizer], places[options->params], threads,
                threads == 1 ? "" : "s",
                facts->is_bound ? "each bound to a CPU" : "not bound to CPUs");
    if (is_on && options->clipping == OFFLOAD_CLIP_UNDO)
        zd_log_info(
                "  undo     %.3g %% of the weights are updated before the norm "
                "is known; old values %s",
                100 * zero_undo_share(&plan->zero),
                UNITS_BYTES(plan->zero.needs.offload[OFFLOAD_UNDO]));
    if (is_on && share > 0)
        zd_log_info(
                "  update   %.3g %% of it by the device, the rest by the host",
                100 * share);
    if (is_on && facts->has_file)
        zd_log_info(
                "  file     %s per rank in %s%s",
                UNITS_BYTES(plan->arena.bytes[ARENA_DISK]), options->nvme_path,
                facts->is_direct ? "" : ", through the page cache");
    if (options->activations != OFFLOAD_NONE && moved)
        zd_log_info(
                "  offload  %s of activations on the host",
                UNITS_BYTES(moved->bytes));
    else if (options->activations != OFFLOAD_NONE)
        zd_log_info("  note     offload.activations moves nothing: the inputs "
                    "of up to two recomputed segments stay on the device");
}

/* What "auto" chose. */
static void tell_auto(const struct train_banner *banner)
{
    const struct train_job *job = banner->job;
    const struct job_plan *plan = banner->plan;
    char mode[PLAN_NAME_MAX];
    struct text_buffer text = TEXT_BUFFER(160);
    plan_checkpointing_name(plan->shape.checkpointing, mode);
    if (job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO)
        text_buffer_add(&text, "train.gradient_checkpointing = \"%s\"", mode);
    if (plan->chose_pieces)
        text_buffer_add(
                &text, "%strain.tiled_mlp = %d", text.used ? ", " : "",
                plan->shape.mlp_pieces);
    if (job->offload.optimizer != OFFLOAD_NONE && plan->accumulation > 1 &&
        job->offload.accumulate == OFFLOAD_ACCUMULATE_AUTO)
        text_buffer_add(
                &text, "%soffload.accumulate = \"%s\"", text.used ? ", " : "",
                plan->zero.request.accumulate_on_host ? "host" : "device");
    if (plan->chose_order)
        text_buffer_add(
                &text, "%strain.accumulation_order = \"%s\"",
                text.used ? ", " : "", plan_order_name(true));
    if (text.used)
        zd_log_info("  auto     %s", text.out);
}

/* "auto" that chose breadth first is told above. */
static void tell_order(const struct train_banner *banner)
{
    const struct job_plan *plan = banner->plan;
    if (plan->accumulation > 1 && !plan->chose_order)
        zd_log_info(
                "  order    micro-batches %s (train.accumulation_order)",
                plan_order_name(plan->by_layer));
    else if (
            plan->accumulation == 1 &&
            banner->job->train.accumulation_order != ORDER_AUTO)
        zd_log_info("  note     train.accumulation_order changes nothing: a "
                    "step has one micro-batch");
}

/* `set` before the run was resumed overrides the job file. A job that gives the
 * global batch keeps that, on whatever number of ranks. */
static void tell_kept(const struct train_banner *banner)
{
    struct text_buffer text = TEXT_BUFFER(320);
    for (int id = 0; id < SETTINGS; id++) {
        bool is_batch = id == SET_ACCUMULATION &&
                        banner->job->train.global_batch_size > 0;
        if (banner->state->live.given[id])
            text_buffer_add(
                    &text, "%s%s = %.10g", text.used ? ", " : "",
                    is_batch ? "train.global_batch_size"
                             : train_settings[id].key,
                    is_batch ? (double)banner->plan->global_batch
                             : banner->state->live.value[id]);
    }
    if (text.used)
        zd_log_info(
                "  set      %s: set in an earlier start, still in force",
                text.out);
}

void report_banner(const struct train_banner *banner)
{
    const struct job_options *job = &banner->job->job;
    tell_model(banner);
    tell_ranks(banner);
    tell_optimizer(banner);
    tell_fp8(banner);
    tell_offload(banner);
    tell_auto(banner);
    tell_order(banner);
    tell_work(banner);
    tell_scale(banner);
    tell_text(banner);
    zd_log_info("  output   %s", job->output_dir);
    if (banner->socket_path)
        zd_log_info("  control  %s", banner->socket_path);
    if (banner->resumed_from)
        zd_log_info(
                "  resumed  from %s, after step %lld", banner->resumed_from,
                (long long)banner->state->step);
    tell_kept(banner);
}
