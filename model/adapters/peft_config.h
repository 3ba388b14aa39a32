/* peft_config.h - the configuration of an adapter: the keys of PEFT's
 * adapter_config.json, and the modules that they select.
 *
 * Source:  peft 0.21, tuners/lora/config.py, tuners/tuners_utils.py
 *          (check_target_module_exists), utils/other.py (get_pattern_key).
 * Modules: named as transformers names them, without ".weight":
 *          "model.layers.0.self_attn.q_proj", "transformer.h.0.attn.c_attn".
 *
 * A key that we do not implement is refused by name unless its value is null or
 * PEFT's default. Patterns are Python's `re`, matched by PCRE2; differences
 * (\Z, (?P<n>), possessive quantifiers) are not checked. */
#pragma once

#include "base/file/json.h"
#include "model/params.h"

enum { MODULE_BYTES = PARAM_NAME_MAX + 16 };

struct peft_config {
    int r;             /* default 8, as in PEFT */
    double lora_alpha; /* 8 */
    double lora_dropout;
    bool use_rslora; /* alpha / sqrt(r) instead of alpha / r */
    bool use_dora;
    char *base_model; /* base_model_name_or_path; NULL: none; owned */
    json_t *json;     /* all keys as given; owned */
};

/* Parses and checks keys in the format of adapter_config.json. `on_error` is
 * ZD_ERR_DATA for a file, ZD_ERR_CONFIG for a job; `name` is for messages.
 * `json` is borrowed. */
enum zd_status peft_config_parse(
        const json_t *json, const char *name, enum zd_status on_error,
        struct peft_config *config_out);
/* Reads DIR/adapter_config.json. */
enum zd_status peft_config_read(
        const char *dir, struct peft_config *config_out);
void peft_config_fini(struct peft_config *config);

/* Does this module get an adapter, by exclude_modules, modules_to_save,
 * target_modules ("all-linear", a pattern, or names) and layers_to_transform?
 * Call only for linear modules. */
bool peft_config_targets(const struct peft_config *config, const char *module);
/* Is this module trained and saved whole (modules_to_save)? */
bool peft_config_saves(const struct peft_config *config, const char *module);
/* The module's rank and alpha: the first match in rank_pattern and
 * alpha_pattern, else r and lora_alpha. */
int peft_config_rank(const struct peft_config *config, const char *module);
double peft_config_alpha(const struct peft_config *config, const char *module);
/* The factor of B A: alpha / r or alpha / sqrt(r). */
double peft_config_scale(const struct peft_config *config, const char *module);

/* Is the module named `name`, or does it end in ".NAME"? */
bool peft_module_is(const char *module, const char *name);

/* The module of tensor `id` as transformers names it, without ".weight" or
 * ".bias"; GPT-2's with "transformer.". */
struct module {
    char name[MODULE_BYTES];
};
struct module peft_module(
        const struct model_config *config, const struct param_table *table,
        int id);

/* An adapter's configuration with its model. */
struct peft_view {
    const struct model_config *config;
    const struct peft_config *adapter;
    const struct param_table *table;
};
static inline struct module peft_view_module(
        const struct peft_view *view, int id)
{
    return peft_module(view->config, view->table, id);
}
/* Does tensor `id`, the weight of a linear module, get an adapter? */
bool peft_adapts(const struct peft_view *view, int id);
/* Its rank and the factor of B A; r = 0: no adapter. */
struct peft_factors {
    int r;
    double scale;
};
struct peft_factors peft_factors(const struct peft_view *view, int id);
/* Is the tensor in modules_to_save? A tied head is the embedding. */
bool peft_saves(const struct peft_view *view, int id);
