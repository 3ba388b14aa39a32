/* candidate.c - what may be chosen otherwise, and how a job file says it. */
#include "train/plan/candidate.h"

#include "train/plan/print.h"

#include <assert.h>

/* Of each dimension, options 1 and up. */
static const int most_options[CHOICES] = {
        [CHOOSE_MODE] = 4,    [CHOOSE_BATCH] = 1,       [CHOOSE_STAGE] = 4,
        [CHOOSE_BUCKETS] = 1, [CHOOSE_STATES] = 3,      [CHOOSE_MASTER] = 1,
        [CHOOSE_DTYPE] = 1,   [CHOOSE_ACTIVATIONS] = 2, [CHOOSE_PLACE] = 4,
        [CHOOSE_PARAMS] = 3,  [CHOOSE_ADAPTERS] = 2};

static bool names_folder(const struct train_job *job)
{
    return job->offload.nvme_path && *job->offload.nvme_path;
}

/* --- spaces --------------------------------------------------------------- */

static unsigned bit(int option)
{
    return 1u << option;
}

/* As the job has it: the option of each dimension; 0 where none says it. */
static struct plan_candidate as_it_is(const struct train_job *job)
{
    static const unsigned char modes[] = {
            [CHECKPOINTING_NONE] = MODE_NONE,
            [CHECKPOINTING_SELECTIVE] = MODE_SELECTIVE,
            [CHECKPOINTING_SQRT] = MODE_SQRT,
            [CHECKPOINTING_FULL] = MODE_FULL,
            [CHECKPOINTING_EVERY] = 0,
            [CHECKPOINTING_AUTO] = 0};
    const struct offload_options *offload = &job->offload;
    struct plan_candidate now = {{0}};
    now.option[CHOOSE_MODE] = modes[job->train.gradient_checkpointing.mode];
    now.option[CHOOSE_STAGE] = (unsigned char)(STAGE_0 + job->zero.stage);
    now.option[CHOOSE_ACTIVATIONS] = offload->activations != OFFLOAD_NONE
                                             ? ACTIVATIONS_CPU
                                             : ACTIVATIONS_DEVICE;
    now.option[CHOOSE_PLACE] = offload->optimizer == OFFLOAD_NVME  ? PLACE_NVME
                               : offload->optimizer == OFFLOAD_CPU ? PLACE_CPU
                               : job->optim.paged                  ? PLACE_PAGED
                                                  : PLACE_DEVICE;
    now.option[CHOOSE_PARAMS] = offload->params == OFFLOAD_NVME ? PARAMS_NVME
                                : offload->params == OFFLOAD_CPU
                                        ? PARAMS_CPU
                                        : PARAMS_DEVICE;
    return now;
}

/* The options of a dimension that come after what the job has. */
static unsigned beyond(int option, unsigned options)
{
    return options & ~(bit(option + 1) - 1);
}

struct plan_space plan_space_refusal(const struct train_job *job)
{
    const struct plan_candidate now = as_it_is(job);
    struct plan_space space = {{0}};
    space.options[CHOOSE_MODE] = bit(MODE_FULL);
    space.options[CHOOSE_BATCH] = bit(BATCH_OTHER);
    space.options[CHOOSE_STAGE] = bit(STAGE_3);
    space.options[CHOOSE_STATES] = bit(STATES_8BIT);
    space.options[CHOOSE_PLACE] =
            beyond(now.option[CHOOSE_PLACE],
                   bit(PLACE_PAGED) | bit(PLACE_CPU) | bit(PLACE_NVME));
    space.options[CHOOSE_PARAMS] = beyond(
            now.option[CHOOSE_PARAMS], bit(PARAMS_CPU) | bit(PARAMS_NVME));
    return space;
}

struct plan_space plan_space_fit(const struct train_job *job, unsigned allow)
{
    struct plan_space space = {{0}};
    for (int d = 0; d < CHOICES; d++)
        space.options[d] = (bit(most_options[d]) - 1) << 1;
    if (!(allow & PLAN_ALLOW_OPTIM))
        space.options[CHOOSE_STATES] = space.options[CHOOSE_MASTER] = 0;
    if (!(allow & PLAN_ALLOW_DTYPE))
        space.options[CHOOSE_DTYPE] = 0;
    if (!(allow & PLAN_ALLOW_LORA))
        space.options[CHOOSE_ADAPTERS] &= ~bit(ADAPTERS_LORA);
    /* a model that adapters are not put on stays as it is */
    if (!(allow & PLAN_ALLOW_QUANTIZE) ||
        (!(allow & PLAN_ALLOW_LORA) && !job->lora.enabled))
        space.options[CHOOSE_ADAPTERS] &= ~bit(ADAPTERS_QLORA);
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
        while (++*option <= most_options[d])
            if (space->options[d] & bit(*option))
                return true;
        *option = 0;
    }
    return false;
}

/* --- one candidate -------------------------------------------------------- */

static struct train_job with_states(struct train_job job, int option)
{
    if (option == STATES_8BIT)
        job.optim.state_type = OPTIM_STATE_8BIT;
    if (option == STATES_BF16)
        job.optim.state_type = OPTIM_STATE_BF16;
    if (option == STATES_MINI)
        job.optim.name = OPTIM_ADAM_MINI;
    return job;
}

static struct train_job with_place(struct train_job job, int option)
{
    if (!option)
        return job;
    if (option == PLACE_PAGED || option == PLACE_DEVICE)
        job.optim.paged = option == PLACE_PAGED;
    job.offload.optimizer = option == PLACE_CPU    ? OFFLOAD_CPU
                            : option == PLACE_NVME ? OFFLOAD_NVME
                                                   : OFFLOAD_NONE;
    return job;
}

struct train_job candidate_job(
        const struct train_job *job, const struct plan_candidate *candidate)
{
    static const enum offload_tier tiers[] = {
            OFFLOAD_NONE, OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_NVME};
    const unsigned char *option = candidate->option;
    struct train_job changed = with_states(*job, option[CHOOSE_STATES]);
    changed = with_place(changed, option[CHOOSE_PLACE]);
    if (option[CHOOSE_STAGE])
        changed.zero.stage = option[CHOOSE_STAGE] - STAGE_0;
    if (option[CHOOSE_BUCKETS]) {
        changed.zero.reduce_bucket_size = 0;
        changed.zero.prefetch_bucket_size = 0;
        changed.zero.max_reuse_distance = 0;
    }
    if (option[CHOOSE_MASTER])
        changed.optim.master = OPTIM_MASTER_NONE;
    if (option[CHOOSE_DTYPE])
        changed.train.dtype = DTYPE_BF16;
    if (option[CHOOSE_ACTIVATIONS])
        changed.offload.activations = tiers[option[CHOOSE_ACTIVATIONS]];
    if (option[CHOOSE_PARAMS])
        changed.offload.params = tiers[option[CHOOSE_PARAMS]];
    if (option[CHOOSE_ADAPTERS])
        changed.lora.enabled = true;
    if (option[CHOOSE_ADAPTERS] == ADAPTERS_QLORA)
        changed.lora.quantize_base = LORA_BASE_NF4;
    if (!changed.offload.nvme_path)
        changed.offload.nvme_path = "";
    return changed;
}

struct checkpointing candidate_mode(const struct plan_candidate *candidate)
{
    static const enum checkpointing_mode modes[] = {
            [MODE_NONE] = CHECKPOINTING_NONE,
            [MODE_SELECTIVE] = CHECKPOINTING_SELECTIVE,
            [MODE_SQRT] = CHECKPOINTING_SQRT,
            [MODE_FULL] = CHECKPOINTING_FULL};
    return (struct checkpointing){
            .mode = modes[candidate->option[CHOOSE_MODE]]};
}

/* Masters none and states in few bits are for some optimizers and types. */
static bool states_are_sound(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    const struct optim_options *now = &job->optim, *then = &changed->optim;
    switch (candidate->option[CHOOSE_STATES]) {
    case STATES_8BIT:
        if (now->state_type == OPTIM_STATE_8BIT || now->name == OPTIM_SGD)
            return false;
        break;
    case STATES_BF16:
        if (now->state_type != OPTIM_STATE_FP32 || now->name != OPTIM_ADAMW)
            return false;
        break;
    case STATES_MINI:
        if (now->name != OPTIM_ADAMW || now->state_type == OPTIM_STATE_BF16)
            return false;
        break;
    }
    if (then->paged &&
        (then->state_type == OPTIM_STATE_BF16 ||
         (then->name != OPTIM_ADAMW && then->name != OPTIM_LION)))
        return false; /* there is no such optimizer */
    if (candidate->option[CHOOSE_MASTER] &&
        (now->master == OPTIM_MASTER_NONE ||
         changed->train.dtype != DTYPE_BF16))
        return false;
    return !candidate->option[CHOOSE_DTYPE] || job->train.dtype == DTYPE_FP32;
}

/* [offload] has keys that mean nothing without an optimizer there, and undoing
 * a clipped update is for some of them: what the job gives stays legal. */
static bool offload_is_sound(
        const struct train_job *job, int world, const struct train_job *changed)
{
    const struct offload_options *then = &changed->offload;
    const struct offload_options initial = offload_options_default();
    bool has_keys = job->offload.threads != initial.threads ||
                    job->offload.clipping != initial.clipping ||
                    job->offload.accumulate != initial.accumulate ||
                    job->offload.pin_memory != initial.pin_memory;
    if (has_keys && job->offload.optimizer != OFFLOAD_NONE &&
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
 * in codes stays in those. */
static bool adapters_are_sound(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct train_job *changed)
{
    bool quantizes = candidate->option[CHOOSE_ADAPTERS] == ADAPTERS_QLORA;
    if (job->train.freeze_count || changed->optim.master != OPTIM_MASTER_FP32)
        return false;
    if (quantizes && (job->lora.quantize_base != LORA_BASE_NONE ||
                      job->lora.gives_quantize_base))
        return false;
    return quantizes || !job->lora.enabled;
}

static bool has_buckets(const struct zero_options *zero)
{
    return zero->reduce_bucket_size || zero->prefetch_bucket_size ||
           zero->max_reuse_distance;
}

bool candidate_is_sound(
        const struct train_job *job, int world,
        const struct plan_candidate *candidate)
{
    const struct plan_candidate now = as_it_is(job);
    const struct train_job changed = candidate_job(job, candidate);
    const unsigned char *option = candidate->option;
    for (int d = 0; d < CHOICES; d++)
        if (option[d] && option[d] == now.option[d])
            return false;
    if (option[CHOOSE_STAGE] && world == 1)
        return false;
    if (option[CHOOSE_BUCKETS] && !has_buckets(&job->zero))
        return false;
    if (changed.lora.enabled && option[CHOOSE_MASTER])
        return false;
    if (option[CHOOSE_ADAPTERS] &&
        !adapters_are_sound(job, candidate, &changed))
        return false;
    int mode =
            option[CHOOSE_MODE] ? option[CHOOSE_MODE] : now.option[CHOOSE_MODE];
    if (changed.offload.activations != OFFLOAD_NONE &&
        (mode == MODE_NONE || mode == MODE_SELECTIVE))
        return false;
    return states_are_sound(job, candidate, &changed) &&
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

static void set(
        struct writer *writer, const char *key, const char *value, bool is_text,
        const char *why)
{
    assert(writer->count < PLAN_SETTINGS_MAX);
    struct plan_setting *setting = &writer->out[writer->count++];
    *setting =
            (struct plan_setting){.key = key, .why = why, .is_text = is_text};
    snprintf(setting->value, sizeof setting->value, "%s", value);
}

static void set_number(
        struct writer *writer, const char *key, int value, const char *why)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    set(writer, key, text, false, why);
}

static void set_optimizer(
        struct writer *writer, const struct train_job *job,
        const struct plan_candidate *candidate, const struct train_job *changed)
{
    static const char *const state_names[] = {"fp32", "bf16", "8bit"};
    int states = candidate->option[CHOOSE_STATES];
    bool pages = changed->optim.paged != job->optim.paged;
    char name[PLAN_NAME_MAX];
    plan_optimizer_name(&changed->optim, name);
    if (states == STATES_8BIT || states == STATES_MINI || pages)
        set(writer, "optim.name", name, true,
            pages ? "states go to the host as far as the device lacks room"
                  : "states take less");
    if (states == STATES_BF16 || (states == STATES_8BIT && job->names_states))
        set(writer, "optim.state_dtype", state_names[changed->optim.state_type],
            true, "states take less");
    if (candidate->option[CHOOSE_MASTER])
        set(writer, "optim.master", "none", true,
            "no fp32 copy of the weights; they are rounded stochastically");
}

static const char *tier_name(enum offload_tier tier)
{
    static const char *const names[] = {"none", "cpu", "nvme"};
    return names[tier];
}

static void set_tiers(
        struct writer *writer, const struct train_job *job,
        const struct train_job *changed)
{
    const struct offload_options *now = &job->offload,
                                 *then = &changed->offload;
    if (now->optimizer != then->optimizer)
        set(writer, "offload.optimizer", tier_name(then->optimizer), true,
            then->optimizer == OFFLOAD_NONE
                    ? "masters and states have room on the device"
                    : "masters and states leave the device");
    if (then->optimizer == OFFLOAD_NVME && !names_folder(job))
        set(writer, "offload.nvme_path", "FOLDER", true, "where they are kept");
    if (now->params != then->params)
        set(writer, "offload.params", tier_name(then->params), true,
            then->params == OFFLOAD_NONE
                    ? "parameters have room on the device"
                    : "parameters visit the device when they are used");
    if (now->activations != then->activations)
        set(writer, "offload.activations", tier_name(then->activations), true,
            "where layers are computed again from waits there");
}

static void set_batch(struct writer *writer, const struct job_choice *choice)
{
    set_number(
            writer, "train.per_device_train_batch_size", choice->B,
            "the largest micro-batch that fits");
    set_number(
            writer, "train.gradient_accumulation_steps", choice->A,
            "so that a step has the same samples");
}

int candidate_settings(
        const struct train_job *job, const struct plan_candidate *candidate,
        const struct job_choice *choice,
        struct plan_setting out[PLAN_SETTINGS_MAX])
{
    static const char *const modes[] = {
            "", "none", "selective", "sqrt", "full"};
    const struct train_job changed = candidate_job(job, candidate);
    const unsigned char *option = candidate->option;
    struct writer writer = {.out = out};
    if (option[CHOOSE_ADAPTERS] && !job->lora.enabled)
        set(&writer, "lora.enabled", "true", false,
            "adapters are trained, the model stays as it is");
    if (option[CHOOSE_ADAPTERS] == ADAPTERS_QLORA)
        set(&writer, "lora.quantize_base", "nf4", true,
            "the layers' weights are held in 4 bits");
    if (option[CHOOSE_STAGE])
        set_number(
                &writer, "zero.stage", changed.zero.stage,
                changed.zero.stage > job->zero.stage ? "more is cut over ranks"
                                                     : "less goes over wires");
    if (option[CHOOSE_MODE])
        set(&writer, "train.gradient_checkpointing", modes[option[CHOOSE_MODE]],
            true,
            option[CHOOSE_MODE] == MODE_NONE
                    ? "activations have room: nothing is computed twice"
            : option[CHOOSE_MODE] == MODE_SELECTIVE
                    ? "norms and activations are computed again"
                    : "activations are computed again instead of kept");
    if (option[CHOOSE_BATCH])
        set_batch(&writer, choice);
    if (option[CHOOSE_BUCKETS]) {
        if (job->zero.reduce_bucket_size)
            set(&writer, "zero.reduce_bucket_size", "auto", true,
                "gradients wait in less memory");
        if (job->zero.prefetch_bucket_size)
            set(&writer, "zero.prefetch_bucket_size", "auto", true,
                "one unit ahead, not more");
        if (job->zero.max_reuse_distance)
            set(&writer, "zero.max_reuse_distance", "auto", true,
                "no slots to keep units in");
    }
    set_optimizer(&writer, job, candidate, &changed);
    if (option[CHOOSE_DTYPE])
        set(&writer, "train.dtype", "bf16", true, "half of the bytes");
    set_tiers(&writer, job, &changed);
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
