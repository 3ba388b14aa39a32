/* trainer_words.c - schedules, data and adapters as others name them. */
#include "daemon/init/trainer_words.h"

#include "base/file/fs.h"
#include "model/config.h"
#include "model/files/config.h"

#include <string.h>

/* --- schedules ------------------------------------------------------------ */

void words_schedule(
        struct foreign *foreign, const char *name, const json_t *value)
{
    static const struct {
        const char *theirs, *ours;
        double floor;
    } types[] = {
            {"linear", "linear", 0},
            {"cosine", "cosine", 0},
            {"constant", "constant", 0},
            {"constant_with_warmup", "constant", 0},
            {"cosine_with_min_lr", "cosine", 0}};
    const char *type = json_string_value(value);
    if (foreign_is_open(value))
        return;
    for (size_t i = 0; type && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].theirs) != 0)
            continue;
        foreign_set(
                foreign, name, "optim.lr_scheduler_type",
                json_string(types[i].ours));
        if (strcmp(type, "constant") == 0)
            draft_replace(
                    foreign->draft, "optim.warmup_steps", json_integer(0),
                    "lr_scheduler_type = constant has no warm-up");
        return;
    }
    foreign_refuse(
            foreign, name, value,
            "no such schedule here: linear, cosine, constant and "
            "constant_with_warmup are; wsd is in job.toml");
}

/* Their floor: a share of the largest rate, or a rate. */
static void finish_floor(struct foreign *foreign)
{
    static const char *const shares[] = {
            "lr_scheduler_kwargs.min_lr_rate", "cosine_min_lr_ratio"};
    struct draft *draft = foreign->draft;
    const json_t *line = json_object_get(draft->values, "optim.learning_rate");
    double rate = json_number_value(json_object_get(line, "value"));
    const json_t *least = foreign_get(foreign, "lr_scheduler_kwargs.min_lr");
    for (int i = 0; i < 2; i++) {
        const json_t *share = foreign_get(foreign, shares[i]);
        if (json_is_number(share))
            foreign_set(
                    foreign, shares[i], "optim.min_lr_ratio",
                    json_real(json_number_value(share)));
    }
    if (json_is_number(least) && rate > 0)
        foreign_set(
                foreign, "lr_scheduler_kwargs.min_lr", "optim.min_lr_ratio",
                json_real(json_number_value(least) / rate));
}

/* Steps of warm-up count before their share; 0 of both is none. */
static void finish_warmup(struct foreign *foreign)
{
    const json_t *steps = foreign_get(foreign, "warmup_steps");
    const json_t *ratio = foreign_get(foreign, "warmup_ratio");
    struct draft *draft = foreign->draft;
    if (draft_has(draft, "optim.warmup_steps"))
        return; /* of a constant schedule */
    if (json_number_value(steps) > 0)
        foreign_set(
                foreign, "warmup_steps", "optim.warmup_steps",
                json_deep_copy(steps));
    else if (json_is_number(ratio))
        foreign_set(
                foreign, "warmup_ratio", "optim.warmup_steps",
                json_real(json_number_value(ratio)));
    else if (json_is_number(steps))
        foreign_set(
                foreign, "warmup_steps", "optim.warmup_steps", json_integer(0));
    if (json_number_value(steps) > 0 && json_number_value(ratio) > 0)
        draft_note(draft, "warmup_ratio", "overridden by warmup_steps");
}

void words_finish(struct foreign *foreign)
{
    const json_t *deepspeed = foreign_get(foreign, "deepspeed");
    finish_floor(foreign);
    finish_warmup(foreign);
    if (foreign_is_open(deepspeed) || json_is_false(deepspeed))
        return;
    foreign_take_deepspeed(foreign, "deepspeed", deepspeed);
    draft_note(foreign->draft, "deepspeed", "its keys are converted, as these");
}

/* --- models, data --------------------------------------------------------- */

/* OWNER/NAME, or as of old NAME alone, and no file or folder. */
static bool is_on_hub(const char *name)
{
    const char *slash = strchr(name, '/');
    return (!slash || (slash != name && !strchr(slash + 1, '/'))) &&
           name[0] != '.' && !fs_exists(name);
}

void words_tell_hub_data(struct foreign *foreign, const char *name)
{
    if (strchr(name, '/') && !strpbrk(name, "*?[") && is_on_hub(name))
        draft_say(
                foreign->draft,
                "data of a hub, unless %s is a file: hf download %s "
                "--repo-type dataset --local-dir %s, and name the files in "
                "[[data.train]]",
                name, name, name);
}

/* What --model names stands already. */
void words_model(struct foreign *foreign, const char *name, const json_t *value)
{
    struct draft *draft = foreign->draft;
    const char *model = json_string_value(value);
    if (foreign_is_open(value))
        return;
    if (!model) {
        foreign_refuse(foreign, name, value, "it is a folder");
        return;
    }
    if (draft_has(draft, "model.path")) {
        draft_note(draft, name, "overridden by --model");
        return;
    }
    foreign_set(foreign, name, "model.path", json_string(model));
    if (is_on_hub(model))
        draft_say(
                draft,
                "model.path is a name on a hub: hf download %s --local-dir %s",
                model, model);
}

void words_train_file(
        struct foreign *foreign, const char *name, const json_t *value)
{
    json_t *source = draft_source(foreign->draft);
    if (foreign_is_open(value))
        return;
    if (json_object_get(source, "path"))
        draft_note(foreign->draft, name, "overridden by --data");
    else if (!json_is_string(value))
        foreign_refuse(foreign, name, value, "it is a file");
    else {
        draft_set_entry(source, "path", json_deep_copy(value), name);
        words_tell_hub_data(foreign, json_string_value(value));
    }
}

/* --- adapters ------------------------------------------------------------- */

/* Where none are named PEFT has a list for each kind of model. */
static json_t *peft_modules(const struct foreign *foreign)
{
    const char *path = draft_text(foreign->draft, "model.path");
    struct model_config config = {0};
    bool is_gpt2 = false;
    if (path && model_config_read_stored(path, &config) == ZD_OK)
        is_gpt2 = config.family == MODEL_GPT2;
    else
        zd_error_clear(); /* it need not be here */
    model_config_fini(&config);
    return is_gpt2 ? json_pack("[s]", "c_attn")
                   : json_pack("[ss]", "q_proj", "v_proj");
}

void words_modules(
        struct foreign *foreign, const char *name, const json_t *value)
{
    const char *only = json_string_value(json_array_get(value, 0));
    bool is_all =
            json_array_size(value) == 1 && only && !strcmp(only, "all-linear");
    bool is_open = foreign_is_open(value) ||
                   (json_is_array(value) && !json_array_size(value));
    if (!is_open)
        foreign_set(
                foreign, name, "lora.target_modules",
                is_all ? json_string(only) : json_deep_copy(value));
    else if (foreign_is(foreign, "use_peft", true) || foreign->is_default)
        draft_set(
                foreign->draft, "lora.target_modules", peft_modules(foreign),
                "PEFT's default for the model");
}

void words_bits(struct foreign *foreign, const char *name, const json_t *value)
{
    const char *type =
            json_string_value(foreign_get(foreign, "bnb_4bit_quant_type"));
    if (!json_is_true(value))
        draft_note(foreign->draft, name, "off, as here");
    else
        foreign_set(
                foreign, name, "lora.quantize_base",
                json_string(
                        strstr(name, "8bit") ? "int8"
                        : type               ? type
                                             : "nf4"));
}

void words_nested(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (foreign_is(foreign, "load_in_4bit", true))
        foreign_set(
                foreign, name, "lora.double_quant",
                json_boolean(json_is_true(value)));
    else
        draft_note(foreign->draft, name, "load_in_4bit is not true");
}

void words_checkpointing(
        struct foreign *foreign, const char *name, const json_t *value)
{
    if (json_is_boolean(value))
        foreign_set(
                foreign, name, "train.gradient_checkpointing",
                json_string(json_is_true(value) ? "full" : "none"));
    else if (
            json_is_string(value) &&
            !strcmp("unsloth", json_string_value(value)))
        foreign_set(
                foreign, name, "train.gradient_checkpointing",
                json_string("full"));
    else if (
            json_is_string(value) &&
            !strcmp("offload", json_string_value(value))) {
        foreign_set(
                foreign, name, "train.gradient_checkpointing",
                json_string("full"));
        foreign_set(foreign, name, "offload.activations", json_string("cpu"));
    } else if (!foreign_is_open(value))
        foreign_refuse(foreign, name, value, "it is true, false or offload");
}

/* --- FSDP ----------------------------------------------------------------- */

static void take_fsdp_word(
        struct foreign *foreign, const char *name, const char *word,
        const json_t *value)
{
    static const struct {
        const char *word;
        int stage;
    } stages[] = {
            {"full_shard", 3},
            {"shard_grad_op", 2},
            {"no_shard", 0},
            {"hybrid_shard", 3},
            {"hybrid_shard_zero2", 2}};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        if (!strcasecmp(stages[i].word, word)) {
            foreign_set(
                    foreign, name, "zero.stage", json_integer(stages[i].stage));
            return;
        }
    if (!strcmp(word, "offload")) {
        foreign_set(foreign, name, "offload.optimizer", json_string("cpu"));
        foreign_set(foreign, name, "offload.params", json_string("cpu"));
    } else if (strcmp(word, "auto_wrap") != 0) {
        foreign_refuse(foreign, name, value, "no word of FSDP that is known");
    }
}

void words_fsdp(struct foreign *foreign, const char *name, const json_t *value)
{
    char words[200], *state = NULL;
    size_t i;
    json_t *item;
    if (json_is_array(value)) {
        json_array_foreach((json_t *)value, i, item)
                words_fsdp(foreign, name, item);
    } else if (json_is_true(value)) {
        foreign_set(foreign, name, "zero.stage", json_integer(3));
    } else if (json_is_string(value)) {
        snprintf(words, sizeof words, "%s", json_string_value(value));
        for (char *word = strtok_r(words, " ,", &state); word;
             word = strtok_r(NULL, " ,", &state))
            take_fsdp_word(foreign, name, word, value);
    }
}

void words_nothing(
        struct foreign *foreign, const char *name, const json_t *value)
{
}
