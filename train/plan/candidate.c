/* candidate.c - the settings that may differ, and their keys in a job file. */
#include "train/plan/candidate.h"

#include "optim/optimizers.h"

#include <stdlib.h>
#include <string.h>

/* --- options -------------------------------------------------------------- */

enum { OPTIONS_MAX = 8 };
#define NO_FIELD    SIZE_MAX
#define FIELD(name) offsetof(struct train_job, name)
static const char recomputes[] = "activations are recomputed instead of kept";
static const char has_room[] = "masters and states have room on the device";
static const char leaves[] = "masters and states are kept off the device";
static const char visits[] =
        "parameters are copied to the device for their use";

/* clang-format off */
static const struct option {
    unsigned char dimension, option;
    size_t field;    /* of the job, set to `value`; NO_FIELD: see choose */
    int value;
    bool is_offered; /* in a refusal */
    unsigned allow;  /* PLAN_ALLOW_* that it needs */
    const char *why; /* NULL: see candidate_settings */
} options[] = {
        {CHOOSE_MODE, MODE_NONE, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_NONE, false, 0,
         "activations have room: nothing is recomputed"},
        {CHOOSE_MODE, MODE_SELECTIVE, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_SELECTIVE, false, 0,
         "norms and activations are recomputed"},
        {CHOOSE_MODE, MODE_SQRT, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_SQRT, false, 0, recomputes},
        {CHOOSE_MODE, MODE_FULL, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_FULL, true, 0, recomputes},
        {CHOOSE_PIECES, 1, FIELD(train.tiled_mlp), 0, true, 0, "the MLP is computed in as many pieces as fit"},
        {CHOOSE_ORDER, ORDER_DEPTH, FIELD(train.accumulation_order), ORDER_DEPTH_FIRST, true, 0,
         "inputs of layers of one micro-batch at a time are kept"},
        {CHOOSE_ORDER, ORDER_BREADTH, FIELD(train.accumulation_order), ORDER_BREADTH_FIRST, true, 0,
         "weights are moved and gradients sent once a step"},
        {CHOOSE_BATCH, BATCH_OTHER, NO_FIELD, 0, true, 0, NULL},
        {CHOOSE_STAGE, STAGE_0, FIELD(zero.stage), 0, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_0 + 1, FIELD(zero.stage), 1, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_0 + 2, FIELD(zero.stage), 2, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_3, FIELD(zero.stage), 3, true, 0, NULL},
        {CHOOSE_STATES, STATES_8BIT, FIELD(optim.state_type), OPTIM_STATE_8BIT, true, PLAN_ALLOW_OPTIM, NULL},
        {CHOOSE_STATES, STATES_BF16, FIELD(optim.state_type), OPTIM_STATE_BF16, false, PLAN_ALLOW_OPTIM, NULL},
        {CHOOSE_STATES, STATES_MINI, FIELD(optim.name), OPTIM_ADAM_MINI, false, PLAN_ALLOW_OPTIM, NULL},
        {CHOOSE_MASTER, 1, FIELD(optim.master), OPTIM_MASTER_NONE, false, PLAN_ALLOW_OPTIM, NULL},
        {CHOOSE_DTYPE, 1, FIELD(train.dtype), DTYPE_BF16, false, PLAN_ALLOW_DTYPE, NULL},
        {CHOOSE_ACTIVATIONS, ACTIVATIONS_DEVICE, FIELD(offload.activations), OFFLOAD_NONE, false, 0,
         "checkpointed layer inputs stay on the device"},
        {CHOOSE_ACTIVATIONS, ACTIVATIONS_CPU, FIELD(offload.activations), OFFLOAD_CPU, false, 0,
         "checkpointed layer inputs are kept in host memory"},
        {CHOOSE_PLACE, PLACE_DEVICE, FIELD(offload.optimizer), OFFLOAD_NONE, false, 0, has_room},
        {CHOOSE_PLACE, PLACE_PAGED, FIELD(offload.optimizer), OFFLOAD_NONE, true, 0, has_room},
        {CHOOSE_PLACE, PLACE_CPU, FIELD(offload.optimizer), OFFLOAD_CPU, true, 0, leaves},
        {CHOOSE_PLACE, PLACE_NVME, FIELD(offload.optimizer), OFFLOAD_NVME, true, 0, leaves},
        {CHOOSE_PARAMS, PARAMS_DEVICE, FIELD(offload.params), OFFLOAD_NONE, false, 0, "parameters have room on the device"},
        {CHOOSE_PARAMS, PARAMS_CPU, FIELD(offload.params), OFFLOAD_CPU, true, 0, visits},
        {CHOOSE_PARAMS, PARAMS_NVME, FIELD(offload.params), OFFLOAD_NVME, true, 0, visits},
        {CHOOSE_MESH, 1, FIELD(parallel.replicate), 1, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 2, FIELD(parallel.replicate), 2, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 3, FIELD(parallel.replicate), 4, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 4, FIELD(parallel.replicate), 8, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 5, FIELD(parallel.replicate), 16, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 6, FIELD(parallel.replicate), 32, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_MESH, 7, FIELD(parallel.replicate), 64, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_CP, 1, FIELD(parallel.cp), 1, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_CP, 2, FIELD(parallel.cp), 2, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_CP, 3, FIELD(parallel.cp), 4, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_CP, 4, FIELD(parallel.cp), 8, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_TP, 1, FIELD(parallel.tp), 1, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_TP, 2, FIELD(parallel.tp), 2, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_TP, 3, FIELD(parallel.tp), 4, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_TP, 4, FIELD(parallel.tp), 8, false, PLAN_ALLOW_MESH, NULL},
        {CHOOSE_ADAPTERS, ADAPTERS_LORA, NO_FIELD, 0, false, PLAN_ALLOW_LORA, NULL},
        {CHOOSE_ADAPTERS, ADAPTERS_QLORA, FIELD(lora.quantize_base), LORA_BASE_NF4, false, PLAN_ALLOW_QUANTIZE, NULL},
};
/* clang-format on */
#undef FIELD
enum { OPTIONS = sizeof options / sizeof options[0] };
_Static_assert(
        sizeof(enum offload_tier) == sizeof(int), "enums of a job are ints");

static int *field_of(struct train_job *job, const struct option *row)
{
    return (int *)(void *)((char *)job + row->field);
}

static bool is_of_mesh(int dimension)
{
    return dimension == CHOOSE_MESH || dimension == CHOOSE_CP ||
           dimension == CHOOSE_TP;
}

static void choose(struct train_job *job, const struct option *row)
{
    if (row->field != NO_FIELD)
        *field_of(job, row) = row->value;
    if (row->dimension == CHOOSE_PLACE && row->value == OFFLOAD_NONE)
        job->optim.paged = row->option == PLACE_PAGED;
    if (is_of_mesh(row->dimension))
        job->parallel.shard = -1;
    if (row->dimension == CHOOSE_ADAPTERS)
        job->lora.enabled = true;
}

/* Does the job already have this option? */
static bool is_now(const struct train_job *job, const struct option *row)
{
    struct train_job same = *job;
    bool is_same =
            row->field != NO_FIELD && *field_of(&same, row) == row->value;
    if (row->dimension == CHOOSE_PLACE && row->value == OFFLOAD_NONE)
        return is_same && job->optim.paged == (row->option == PLACE_PAGED);
    return is_same;
}

static const struct option *row_of(int dimension, int option)
{
    int i = 0;
    while (options[i].dimension != dimension || options[i].option != option)
        i++;
    return &options[i];
}

static bool names_folder(const struct train_job *job)
{
    return job->offload.nvme_path && *job->offload.nvme_path;
}

static unsigned bit(int option)
{
    return 1u << option;
}

struct plan_space plan_space_job(const struct train_job *job)
{
    struct plan_space space = {{0}};
    if (job->train.gradient_checkpointing.mode == CHECKPOINTING_AUTO)
        space.options[CHOOSE_MODE] = bit(MODE_NONE) | bit(MODE_SELECTIVE) |
                                     bit(MODE_SQRT) | bit(MODE_FULL);
    return space;
}

struct plan_space plan_space_refusal(const struct train_job *job)
{
    struct plan_space space = {{0}};
    bool is_beyond[CHOICES] = {false}; /* beyond the job's option */
    ZD_EACH(row, options, OPTIONS) {
        int d = row->dimension;
        bool goes_down = d == CHOOSE_PLACE || d == CHOOSE_PARAMS;
        if (row->is_offered && (is_beyond[d] || !goes_down))
            space.options[d] |= bit(row->option);
        is_beyond[d] |= is_now(job, row);
    }
    return space;
}

struct plan_space plan_space_adapters(const struct train_job *job)
{
    struct plan_space space = plan_space_refusal(job);
    space.options[CHOOSE_ADAPTERS] = bit(ADAPTERS_LORA) | bit(ADAPTERS_QLORA);
    space.options[CHOOSE_PLACE] &= ~bit(PLACE_NVME);
    space.options[CHOOSE_PARAMS] &= ~bit(PARAMS_NVME);
    return space;
}

struct plan_space plan_space_fit(const struct train_job *job, unsigned allow)
{
    struct plan_space space = {{0}};
    /* quantization needs adapters */
    if (!(allow & PLAN_ALLOW_LORA) && !job->lora.enabled)
        allow &= ~(unsigned)PLAN_ALLOW_QUANTIZE;
    for (int i = 0; i < OPTIONS; i++)
        if (!(options[i].allow & ~allow) && !is_now(job, &options[i]))
            space.options[options[i].dimension] |= bit(options[i].option);
    if (!names_folder(job)) {
        space.options[CHOOSE_PLACE] &= ~bit(PLACE_NVME);
        space.options[CHOOSE_PARAMS] &= ~bit(PARAMS_NVME);
    }
    return space;
}

bool candidate_next(
        const struct plan_space *space, struct plan_candidate *candidate)
{
    for (int d = 0; d < CHOICES; d++) {
        unsigned char *option = &candidate->option[d];
        while (++*option < OPTIONS_MAX)
            if (space->options[d] & bit(*option))
                return true;
        *option = 0;
    }
    return false;
}

void candidate_skip(struct plan_candidate *candidate, enum plan_dimension from)
{
    memset(candidate->option, OPTIONS_MAX, from);
}

/* --- the job with a candidate's options ----------------------------------- */

struct train_job candidate_job(
        const struct train_job *job, const struct plan_candidate *candidate)
{
    struct train_job changed = *job;
    for (int d = 0; d < CHOICES; d++)
        if (candidate->option[d])
            choose(&changed, row_of(d, candidate->option[d]));
    if (!changed.offload.nvme_path)
        changed.offload.nvme_path = "";
    return changed;
}

/* --- which go together ---------------------------------------------------- */

/* Only some optimizers and types allow no masters, or states in few bits. */
static bool states_are_sound(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    const struct optim_options *now = &job->optim, *then = &changed->optim;
    int states = candidate->option[CHOOSE_STATES];
    if (states == STATES_8BIT && !optimizer_of(now->name)->has_8bit)
        return false;
    if (states == STATES_BF16 && (now->state_type != OPTIM_STATE_FP32 ||
                                  !optimizer_of(now->name)->has_bf16))
        return false;
    if (states == STATES_MINI &&
        (now->name != OPTIM_ADAMW || now->state_type == OPTIM_STATE_BF16))
        return false;
    if (then->paged &&
        (then->state_type == OPTIM_STATE_BF16 ||
         (then->name != OPTIM_ADAMW && then->name != OPTIM_LION)))
        return false; /* it has no paged form */
    if (candidate->option[CHOOSE_MASTER] && changed->train.dtype != DTYPE_BF16)
        return false;
    return !candidate->option[CHOOSE_DTYPE] || job->train.dtype == DTYPE_FP32;
}

/* Checks that the job's keys remain legal: keys of [offload] that need an
 * offloaded optimizer; undo of a clipped update and a shared update, which some
 * optimizers do not support. */
static bool offload_is_sound(
        const struct train_job *job, int world, const struct train_job *changed)
{
    const struct offload_options *now = &job->offload,
                                 *then = &changed->offload;
    const struct offload_options initial = offload_options_default();
    bool has_keys = now->threads != initial.threads ||
                    now->clipping != initial.clipping ||
                    now->accumulate != initial.accumulate ||
                    now->device_update != initial.device_update;
    if (has_keys && now->optimizer != OFFLOAD_NONE &&
        then->optimizer == OFFLOAD_NONE)
        return false;
    if ((then->clipping == OFFLOAD_CLIP_UNDO || then->device_update > 0) &&
        (then->optimizer == OFFLOAD_NVME ||
         changed->optim.name == OPTIM_ADAM_MINI))
        return false;
    if (then->params == OFFLOAD_NONE)
        return true;
    if (world > 1 && changed->zero.stage < 3)
        return false;
    return then->params == OFFLOAD_NVME ? then->optimizer == OFFLOAD_NVME
                                        : then->optimizer != OFFLOAD_NONE;
}

/* Among several candidates "auto" is depth first. Breadth first only helps if
 * something is moved. */
static bool order_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate, const struct train_job *changed)
{
    const struct offload_options *offload = &changed->offload;
    if (candidate->option[CHOOSE_ORDER] == ORDER_DEPTH)
        return job->train.accumulation_order == ORDER_BREADTH_FIRST;
    if (changed->train.accumulation_order != ORDER_BREADTH_FIRST)
        return true;
    return (world > 1 || offload->optimizer != OFFLOAD_NONE) &&
           offload->accumulate != OFFLOAD_ACCUMULATE_HOST;
}

/* Adapters need a frozen model, and have fp32 masters. A model that is stored
 * quantized stays quantized. */
static bool adapters_are_sound(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    int adapters = candidate->option[CHOOSE_ADAPTERS];
    if (changed->lora.enabled && candidate->option[CHOOSE_MASTER])
        return false;
    if (!adapters)
        return true;
    if (job->train.freeze_count || changed->optim.master != OPTIM_MASTER_FP32)
        return false;
    return adapters == ADAPTERS_QLORA
                   ? job->lora.quantize_base == LORA_BASE_NONE &&
                             !job->lora.gives_quantize_base
                   : !job->lora.enabled;
}

/* Sizes must divide the ranks and a sample; the plan checks whether they fit
 * the model. */
static bool mesh_is_sound(
        int world, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    const struct mesh_sizes sizes = changed->parallel;
    int replicas = sizes.replicate > 0 ? sizes.replicate : 1;
    bool differs = false, is_dora = changed->lora.enabled &&
                                    changed->lora.use_dora && sizes.tp > 1;
    for (int d = 0; d < CHOICES; d++)
        differs |= is_of_mesh(d) && candidate->option[d];
    return !differs ||
           (world % (replicas * sizes.cp * sizes.tp) == 0 &&
            changed->data.cutoff_len % mesh_token_unit(sizes) == 0 && !is_dora);
}

bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate)
{
    const struct train_job changed = candidate_job(job, candidate);
    enum checkpointing_mode mode = changed.train.gradient_checkpointing.mode;
    const unsigned char *option = candidate->option;
    for (int d = 0; d < CHOICES; d++)
        if (option[d] && is_now(job, row_of(d, option[d])))
            return false;
    if (option[CHOOSE_STAGE] && world == 1)
        return false;
    if (changed.offload.activations != OFFLOAD_NONE &&
        (mode == CHECKPOINTING_NONE || mode == CHECKPOINTING_SELECTIVE))
        return false;
    return mesh_is_sound(world, candidate, &changed) &&
           adapters_are_sound(job, candidate, &changed) &&
           order_is_sound(job, world, candidate, &changed) &&
           states_are_sound(job, candidate, &changed) &&
           offload_is_sound(job, world, &changed);
}

int candidate_cost(const struct plan_candidate *candidate)
{
    const unsigned char *option = candidate->option;
    int cost = 0;
    for (int d = 0; d < CHOICES; d++)
        cost += option[d] != 0;
    cost += option[CHOOSE_PLACE] == PLACE_NVME;
    cost += option[CHOOSE_PARAMS] == PARAMS_NVME;
    /* one name for both */
    return cost - (option[CHOOSE_STATES] == STATES_8BIT &&
                   option[CHOOSE_PLACE] == PLACE_PAGED);
}

bool candidate_holds(
        const struct plan_candidate *whole, const struct plan_candidate *part)
{
    for (int d = 0; d < CHOICES; d++)
        if (part->option[d] && part->option[d] != whole->option[d])
            return false;
    return true;
}

/* --- as a job file says it ------------------------------------------------ */

static void say(
        struct plan_settings *out, const char *key, const char *value,
        const char *why)
{
    struct plan_setting *setting = &out->list[out->count++];
    char *end;
    *setting = (struct plan_setting){.key = key, .why = why};
    ZD_PRINT(setting->value, "%s", value);
    strtol(setting->value, &end, 10);
    setting->is_text = *end && strcmp(setting->value, "true") != 0;
}

static void say_number(
        struct plan_settings *out, const char *key, int value, const char *why)
{
    char text[16] = "auto";
    if (value > 0)
        ZD_PRINT(text, "%d", value);
    say(out, key, text, why);
}

static const char *reason_of(
        const struct plan_candidate *candidate, enum plan_dimension dimension)
{
    int option = candidate->option[dimension];
    return option ? row_of(dimension, option)->why : NULL;
}

/* Each key that a candidate may set, with its value in `job` and the reason if
 * it differs from `given`. `choice` NULL: the job's micro-batches. */
/* clang-format off */
static void keys_of(
        const struct train_job *job, const struct train_job *given, const struct plan_candidate *candidate,
        const struct job_choice *choice, struct plan_settings *out)
{
    static const char *const stages[] = {"0", "1", "2", "3"}, *const types[] = {"fp32", "bf16", "8bit"};
    static const char *const orders[] = {"auto", "depth_first", "breadth_first"};
    const struct offload_options *offload = &job->offload;
    const struct mesh_sizes *mesh = &job->parallel, *had = &given->parallel;
    bool is_8bit = job->optim.state_type == OPTIM_STATE_8BIT && !job->names_states; /* implied by the name */
    bool needs_folder = offload->optimizer == OFFLOAD_NVME && !names_folder(job);
    char mode[PLAN_NAME_MAX], optimizer[PLAN_NAME_MAX];
    plan_checkpointing_name(job->train.gradient_checkpointing, mode);
    plan_optimizer_name(&job->optim, optimizer);
    say(out, "lora.enabled", job->lora.enabled ? "true" : "false", "adapters are trained, the model stays as it is");
    say(out, "lora.quantize_base", job->lora.quantize_base == LORA_BASE_NF4 ? "nf4" : "", "the layers' weights are held in 4 bits");
    say(out, "zero.stage", stages[job->zero.stage], job->zero.stage > given->zero.stage ? "more is cut over ranks" : "ranks send less");
    say_number(out, "parallel.dp_replicate_size", mesh->replicate,
               mesh->replicate > had->replicate ? "gathers stay within smaller groups" : "shards are cut over more ranks");
    say_number(out, "parallel.dp_shard_size", mesh->shard, "what the other axes leave");
    say_number(out, "parallel.cp_size", mesh->cp, mesh->cp > had->cp ? "ranks share samples, and activations" : "fewer ranks share a sample");
    say_number(out, "parallel.tp_size", mesh->tp,
               mesh->tp > had->tp ? "layers are cut among ranks of a host" : "layers are cut among fewer ranks");
    say(out, "train.gradient_checkpointing", mode, reason_of(candidate, CHOOSE_MODE));
    say_number(out, "train.tiled_mlp", job->train.tiled_mlp, reason_of(candidate, CHOOSE_PIECES));
    say(out, "train.accumulation_order", orders[job->train.accumulation_order], reason_of(candidate, CHOOSE_ORDER));
    say_number(out, "train.per_device_train_batch_size", choice ? choice->B : 0, "the largest micro-batch that fits");
    say_number(out, "train.gradient_accumulation_steps", choice ? choice->A : 0, "keeps the global batch size");
    say(out, "optim.name", optimizer,
        job->optim.paged != given->optim.paged ? "states go to the host as far as the device lacks room" : "states take less");
    say(out, "optim.state_dtype", types[is_8bit ? given->optim.state_type : job->optim.state_type], "states take less");
    say(out, "optim.master", job->optim.master == OPTIM_MASTER_NONE ? "none" : "fp32",
        "no fp32 copy of the weights; they are rounded stochastically");
    say(out, "train.dtype", dtype_name(job->train.dtype), "half of the bytes");
    say(out, "offload.optimizer", plan_tier_names[offload->optimizer], reason_of(candidate, CHOOSE_PLACE));
    say(out, "offload.nvme_path", needs_folder ? "FOLDER" : "", "where they are kept");
    say(out, "offload.params", plan_tier_names[offload->params], reason_of(candidate, CHOOSE_PARAMS));
    say(out, "offload.activations", plan_tier_names[offload->activations], reason_of(candidate, CHOOSE_ACTIVATIONS));
}
/* clang-format on */

struct plan_settings candidate_settings(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice)
{
    const struct train_job changed = candidate_job(job, candidate);
    struct plan_settings now = {0}, then = {0}, differ = {0};
    keys_of(job, job, candidate, NULL, &now);
    keys_of(&changed, job, candidate,
            candidate->option[CHOOSE_BATCH] ? choice : NULL, &then);
    for (int k = 0; k < then.count; k++)
        if (strcmp(now.list[k].value, then.list[k].value) != 0)
            differ.list[differ.count++] = then.list[k];
    return differ;
}

void settings_print(
        const struct plan_settings *settings, struct text_buffer *text)
{
    for (int i = 0; i < settings->count; i++)
        text_buffer_add(
                text, "%s--set %s=%s", text->used ? " " : "",
                settings->list[i].key, settings->list[i].value);
}

void settings_explain(
        const struct plan_settings *settings, struct text_buffer *text)
{
    for (int i = 0; i < settings->count; i++)
        text_buffer_add(
                text, "%s%s", text->used ? "; " : "", settings->list[i].why);
}
