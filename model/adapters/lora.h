/* lora.h - the tensors of a model with adapters: the base, frozen but for
 * modules_to_save, and after the tensors of each unit the factors A and B of
 * its adapters, named as PEFT names them:
 *
 *   model.layers.0.self_attn.q_proj.weight           (out, in)
 *   model.layers.0.self_attn.q_proj.lora_A.weight    (r, in)
 *   model.layers.0.self_attn.q_proj.lora_B.weight    (out, r)
 *   model.layers.0.self_attn.q_proj.lora_magnitude   (out) DoRA
 *
 * PEFT's lora_magnitude_vector is |W| + ours, by rows: ours begins at 0, so
 * that narrow types do not round away what is learned.
 *
 * Which modules, with which rank and scale: peft_config.h.
 * Source: Hu et al. 2021, arXiv:2106.09685; LoRA+: Hayou et al. 2024,
 * arXiv:2402.12354, section 4; DoRA: Liu et al. 2024, arXiv:2402.09353. */
#pragma once

#include "model/adapters/peft_config.h"
#include "model/weights.h"

enum lora_init { LORA_INIT_DEFAULT, LORA_INIT_GAUSSIAN };
/* quantize_base: how the frozen layers' linear weights are held in memory. */
enum lora_base {
    LORA_BASE_NONE,
    LORA_BASE_NF4,
    LORA_BASE_FP4,
    LORA_BASE_INT8,
    LORA_BASE_FP8
};
/* [lora]; all borrowed. */
struct lora_options {
    bool enabled;
    const char *path; /* of a PEFT adapter to continue; NULL: none */
    int r;
    double lora_alpha, lora_dropout;
    json_t *target_modules, *exclude_modules; /* a string or a list; NULL:
                                                 none */
    const char *const *modules_to_save;
    int modules_to_save_count;
    json_t *layers_to_transform;          /* a number or a list; NULL: all */
    json_t *rank_pattern, *alpha_pattern; /* tables of numbers; NULL: none */
    bool use_rslora, use_dora;
    enum lora_init init_lora_weights;
    double loraplus_lr_ratio; /* learning rate of B over that of A */
    enum lora_base quantize_base;
    bool double_quant; /* 4 bits: absmax in 8 bits too */
    /* set by the job: must agree with a model that is stored quantized */
    bool gives_quantize_base, gives_double_quant;
    json_t *given; /* the keys set by the job, by PEFT's names; NULL: none */
};
struct lora_options lora_options_default(void);

/* The adapter's configuration from `path` and the job. Keys set in both must
 * agree (ZD_ERR_CONFIG), except the dropout. */
enum zd_status lora_config(
        const struct lora_options *options, struct peft_config *config_out);

/* Turns `table`, in which every tensor trains, into the adapted model's.
 * ZD_ERR_CONFIG: a name that is not a module (with help), embeddings or a tied
 * head as targets, r larger than a matrix, no module at all; ZD_ERR_DATA
 * instead if the options name an adapter's folder. `options` may be NULL, for a
 * model that does not train and an adapter from a file. */
enum zd_status lora_extend(
        const struct model_config *config, const struct peft_config *adapter,
        const struct lora_options *options, struct param_table *table);

/* "..q_proj.lora_A.weight" of "..q_proj.weight". */
void lora_part_name(
        const struct param *weight, enum param_part part,
        char out[PARAM_NAME_MAX]);

/* Sets which weights of the adapted model's table are quantized, and how: the
 * layers' frozen linear weights, in the options' format; or, if the model in
 * `dir` is stored quantized, its quantized weights as they are. `dir` NULL: the
 * weights come from elsewhere. Without weight files (in a plan) config.json
 * determines the format. ZD_ERR_CONFIG: the job sets another format than the
 * stored one. */
enum zd_status lora_quantize(
        const struct model_config *config, const struct lora_options *options,
        const char *dir, struct param_table *table);
/* The same for the weights of `source`: as they are stored there, or quantized
 * to `format`. */
enum zd_status lora_quantize_as(
        const struct weight_source *source, const char *format, bool nested,
        struct param_table *table);

/* The weights of an adapted model: the base's tensors from `base` (takes
 * ownership, also on failure); adapters random, or from the PEFT adapter at
 * `path`, with its modules_to_save. */
enum zd_status weights_open_lora(
        const struct model_config *config, const struct param_table *table,
        struct weight_source *base, uint64_t seed, const char *path,
        struct weight_source *source_out);
