/* candidate.c - what may differ, and how a job file says it. */
#include "train/plan/candidate.h"

#include "train/plan/print.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* --- options -------------------------------------------------------------- */

enum { OPTIONS_MAX = 8 };
#define NO_FIELD    SIZE_MAX
#define FIELD(name) offsetof(struct train_job, name)
static const char recomputes[] = "activations are recomputed instead of kept";
static const char has_room[] = "masters and states have room on the device";
static const char leaves[] = "masters and states leave the device";
static const char visits[] = "parameters visit the device when they are used";

/* clang-format off */
static const struct option {
    unsigned char dimension, option;
    size_t field;    /* of the job, which becomes `value`; the rest: choose */
    int value;
    bool is_offered; /* by a refusal */
    unsigned allow;  /* PLAN_ALLOW_* that it takes */
    const char *why; /* NULL: candidate_settings has it */
} options[] = {
        {CHOOSE_MODE, MODE_NONE, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_NONE, false, 0,
         "activations have room: nothing is recomputed"},
        {CHOOSE_MODE, MODE_SELECTIVE, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_SELECTIVE, false, 0,
         "norms and activations are recomputed"},
        {CHOOSE_MODE, MODE_SQRT, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_SQRT, false, 0, recomputes},
        {CHOOSE_MODE, MODE_FULL, FIELD(train.gradient_checkpointing.mode), CHECKPOINTING_FULL, true, 0, recomputes},
        {CHOOSE_BATCH, BATCH_OTHER, NO_FIELD, 0, true, 0, NULL},
        {CHOOSE_STAGE, STAGE_0, FIELD(zero.stage), 0, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_0 + 1, FIELD(zero.stage), 1, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_0 + 2, FIELD(zero.stage), 2, false, 0, NULL},
        {CHOOSE_STAGE, STAGE_3, FIELD(zero.stage), 3, true, 0, NULL},
        {CHOOSE_BUCKETS, 1, NO_FIELD, 0, false, 0, NULL},
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

static void choose(struct train_job *job, const struct option *row)
{
    if (row->field != NO_FIELD)
        *field_of(job, row) = row->value;
    if (row->dimension == CHOOSE_PLACE && row->value == OFFLOAD_NONE)
        job->optim.paged = row->option == PLACE_PAGED;
    if (row->dimension == CHOOSE_ADAPTERS)
        job->lora.enabled = true;
    if (row->dimension == CHOOSE_BUCKETS)
        job->zero.reduce_bucket_size = job->zero.prefetch_bucket_size =
                job->zero.max_reuse_distance = 0;
}

/* The job has it already. */
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
    bool is_beyond[CHOICES] = {false}; /* after what the job has */
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *row = &options[i];
        int d = row->dimension;
        bool goes_down = d == CHOOSE_PLACE || d == CHOOSE_PARAMS;
        if (row->is_offered && (is_beyond[d] || !goes_down))
            space.options[d] |= bit(row->option);
        is_beyond[d] |= is_now(job, row);
    }
    return space;
}

struct plan_space plan_space_fit(const struct train_job *job, unsigned allow)
{
    struct plan_space space = {{0}};
    /* only a model with adapters is quantized */
    if (!(allow & PLAN_ALLOW_LORA) && !job->lora.enabled)
        allow &= ~(unsigned)PLAN_ALLOW_QUANTIZE;
    for (int i = 0; i < OPTIONS; i++)
        if (!(options[i].allow & ~allow))
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

/* No masters and states in few bits are for some optimizers and types. */
static bool states_are_sound(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    const struct optim_options *now = &job->optim, *then = &changed->optim;
    int states = candidate->option[CHOOSE_STATES];
    if (states == STATES_8BIT && now->name == OPTIM_SGD)
        return false;
    if (states == STATES_BF16 &&
        (now->state_type != OPTIM_STATE_FP32 || now->name != OPTIM_ADAMW))
        return false;
    if (states == STATES_MINI &&
        (now->name != OPTIM_ADAMW || now->state_type == OPTIM_STATE_BF16))
        return false;
    if (then->paged &&
        (then->state_type == OPTIM_STATE_BF16 ||
         (then->name != OPTIM_ADAMW && then->name != OPTIM_LION)))
        return false; /* there is no paged one */
    if (candidate->option[CHOOSE_MASTER] && changed->train.dtype != DTYPE_BF16)
        return false;
    return !candidate->option[CHOOSE_DTYPE] || job->train.dtype == DTYPE_FP32;
}

/* Keys of [offload] that mean nothing without an offloaded optimizer, and undo
 * of a clipped update, which some have not: what the job gives stays legal. */
static bool offload_is_sound(
        const struct train_job *job, int world, const struct train_job *changed)
{
    const struct offload_options *now = &job->offload,
                                 *then = &changed->offload;
    const struct offload_options initial = offload_options_default();
    bool has_keys = now->threads != initial.threads ||
                    now->clipping != initial.clipping ||
                    now->accumulate != initial.accumulate ||
                    now->pin_memory != initial.pin_memory;
    if (has_keys && now->optimizer != OFFLOAD_NONE &&
        then->optimizer == OFFLOAD_NONE)
        return false;
    if (then->clipping == OFFLOAD_CLIP_UNDO &&
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

/* Adapters go on a frozen model, and have fp32 masters. A model that is stored
 * quantized stays so. */
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

bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate)
{
    const struct train_job changed = candidate_job(job, candidate);
    const struct zero_options *zero = &job->zero;
    enum checkpointing_mode mode = changed.train.gradient_checkpointing.mode;
    const unsigned char *option = candidate->option;
    for (int d = 0; d < CHOICES; d++)
        if (option[d] && is_now(job, row_of(d, option[d])))
            return false;
    if (option[CHOOSE_STAGE] && world == 1)
        return false;
    if (option[CHOOSE_BUCKETS] &&
        !(zero->reduce_bucket_size || zero->prefetch_bucket_size ||
          zero->max_reuse_distance))
        return false;
    if (changed.offload.activations != OFFLOAD_NONE &&
        (mode == CHECKPOINTING_NONE || mode == CHECKPOINTING_SELECTIVE))
        return false;
    return adapters_are_sound(job, candidate, &changed) &&
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
    /* one name says both */
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

struct writer {
    struct plan_setting *out;
    int count;
};

static void add(
        struct writer *writer, const char *key, const char *value,
        const char *why)
{
    char *end;
    assert(writer->count < PLAN_SETTINGS_MAX);
    struct plan_setting *setting = &writer->out[writer->count++];
    *setting = (struct plan_setting){.key = key, .why = why};
    strtol(value, &end, 10);
    setting->is_text = *end && strcmp(value, "true") != 0;
    snprintf(setting->value, sizeof setting->value, "%s", value);
}

/* Where the two differ. */
static void set(
        struct writer *writer, const char *key, const char *now,
        const char *then, const char *why)
{
    if (strcmp(now, then) != 0)
        add(writer, key, then, why);
}

static void add_number(
        struct writer *writer, const char *key, int value, const char *why)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add(writer, key, text, why);
}

static void set_optimizer(
        struct writer *writer, const struct train_job *now,
        const struct train_job *then)
{
    static const char *const types[] = {"fp32", "bf16", "8bit"};
    bool pages = now->optim.paged != then->optim.paged;
    bool is_named =
            then->optim.state_type != OPTIM_STATE_8BIT || now->names_states;
    char before[PLAN_NAME_MAX], after[PLAN_NAME_MAX];
    plan_optimizer_name(&now->optim, before);
    plan_optimizer_name(&then->optim, after);
    set(writer, "optim.name", before, after,
        pages ? "states go to the host as far as the device lacks room"
              : "states take less");
    if (is_named)
        set(writer, "optim.state_dtype", types[now->optim.state_type],
            types[then->optim.state_type], "states take less");
    if (now->optim.master != then->optim.master)
        add(writer, "optim.master", "none",
            "no fp32 copy of the weights; they are rounded stochastically");
}

/* Those that the job gives. */
static void set_buckets(struct writer *writer, const struct zero_options *zero)
{
    const struct {
        const char *key, *why;
        bool is_given;
    } buckets[] = {
            {"zero.reduce_bucket_size", "gradients wait in less memory",
             zero->reduce_bucket_size},
            {"zero.prefetch_bucket_size", "one unit ahead, not more",
             zero->prefetch_bucket_size},
            {"zero.max_reuse_distance", "no slots to keep units in",
             zero->max_reuse_distance}};
    for (int i = 0; i < 3; i++)
        if (buckets[i].is_given)
            add(writer, buckets[i].key, "auto", buckets[i].why);
}

int candidate_settings(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice,
        struct plan_setting out[PLAN_SETTINGS_MAX])
{
    const struct train_job changed = candidate_job(job, candidate);
    const struct offload_options *now = &job->offload, *then = &changed.offload;
    const unsigned char *option = candidate->option;
    const char *why[CHOICES] = {NULL};
    char mode[PLAN_NAME_MAX];
    struct writer writer = {.out = out};
    for (int d = 0; d < CHOICES; d++)
        if (option[d])
            why[d] = row_of(d, option[d])->why;
    plan_checkpointing_name(changed.train.gradient_checkpointing, mode);
    if (changed.lora.enabled != job->lora.enabled)
        add(&writer, "lora.enabled", "true",
            "adapters are trained, the model stays as it is");
    if (option[CHOOSE_ADAPTERS] == ADAPTERS_QLORA)
        add(&writer, "lora.quantize_base", "nf4",
            "the layers' weights are held in 4 bits");
    if (option[CHOOSE_STAGE])
        add_number(
                &writer, "zero.stage", changed.zero.stage,
                changed.zero.stage > job->zero.stage ? "more is cut over ranks"
                                                     : "less goes over wires");
    if (option[CHOOSE_MODE])
        add(&writer, "train.gradient_checkpointing", mode, why[CHOOSE_MODE]);
    if (option[CHOOSE_BATCH]) {
        add_number(
                &writer, "train.per_device_train_batch_size", choice->B,
                "the largest micro-batch that fits");
        add_number(
                &writer, "train.gradient_accumulation_steps", choice->A,
                "keeps the global batch size");
    }
    if (option[CHOOSE_BUCKETS])
        set_buckets(&writer, &job->zero);
    set_optimizer(&writer, job, &changed);
    if (option[CHOOSE_DTYPE])
        add(&writer, "train.dtype", "bf16", "half of the bytes");
    set(&writer, "offload.optimizer", plan_tier_name(now->optimizer),
        plan_tier_name(then->optimizer), why[CHOOSE_PLACE]);
    if (then->optimizer == OFFLOAD_NVME && !names_folder(job))
        add(&writer, "offload.nvme_path", "FOLDER", "where they are kept");
    set(&writer, "offload.params", plan_tier_name(now->params),
        plan_tier_name(then->params), why[CHOOSE_PARAMS]);
    set(&writer, "offload.activations", plan_tier_name(now->activations),
        plan_tier_name(then->activations), why[CHOOSE_ACTIVATIONS]);
    return writer.count;
}

void settings_print(
        const struct plan_setting *settings, int count,
        struct text_buffer *text)
{
    for (int i = 0; i < count; i++)
        text_buffer_add(
                text, "%s--set %s=%s", text->used ? " " : "", settings[i].key,
                settings[i].value);
}

void settings_explain(
        const struct plan_setting *settings, int count,
        struct text_buffer *text)
{
    for (int i = 0; i < count; i++)
        text_buffer_add(text, "%s%s", text->used ? "; " : "", settings[i].why);
}
