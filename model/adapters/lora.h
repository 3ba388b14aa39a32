/* lora.h - the tensors of a model with adapters: the base, frozen but for
 * modules_to_save, and after the tensors of each unit the factors A and B of
 * its adapters, named as PEFT names them:
 *
 *   model.layers.0.self_attn.q_proj.weight           (out, in)
 *   model.layers.0.self_attn.q_proj.lora_A.weight    (r, in)
 *   model.layers.0.self_attn.q_proj.lora_B.weight    (out, r)
 *   model.layers.0.self_attn.q_proj.lora_magnitude   (out) DoRA
 *
 * PEFT's lora_magnitude_vector is |W| + ours, by rows: so it begins at 0
 * and narrow types keep what is learned.
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
    const char *path; /* of a PEFT adapter to go on from; NULL: none */
    int r;
    double lora_alpha, lora_dropout;
    json_t *target_modules, *exclude_modules; /* a text, or texts; NULL: none */
    const char *const *modules_to_save;
    int modules_to_save_count;
    json_t *layers_to_transform;          /* a number, or numbers; NULL: all */
    json_t *rank_pattern, *alpha_pattern; /* tables of numbers; NULL: none */
    bool use_rslora, use_dora;
    enum lora_init init_lora_weights;
    double loraplus_lr_ratio; /* learning rate of B over that of A */
    enum lora_base quantize_base;
    bool double_quant; /* 4 bits: absmax in 8 bits too */
    /* the job gives these two: they must be what a model is stored in */
    bool gives_quantize_base, gives_double_quant;
    json_t *given; /* of the above what the job gives, as keys of PEFT; NULL:
                      nothing */
};
struct lora_options lora_options_default(void);

/* The adapter's configuration: of `path` and then of the job, which must agree
 * where both say something (ZD_ERR_CONFIG) but for the dropout. */
enum zd_status lora_config(
        const struct lora_options *options, struct peft_config *config_out);

/* Make `table`, whose tensors all train, that of the adapted model.
 * ZD_ERR_CONFIG: a name that is no module (with those that are), embeddings or
 * a tied head as targets, r beyond a matrix, no module at all; ZD_ERR_DATA
 * where the options name an adapter's folder, whose mistake it is then.
 * `options` may be NULL: a model that is not trained, with an adapter of a
 * file. */
enum zd_status lora_extend(
        const struct model_config *config, const struct peft_config *adapter,
        const struct lora_options *options, struct param_table *table);

/* "..q_proj.lora_A.weight" of "..q_proj.weight". */
void lora_part_name(
        const struct param *weight, enum param_part part,
        char out[PARAM_NAME_MAX]);

/* Which weights of the adapted model's table are quantized, and how: the frozen
 * linear weights of the layers, in the options' format; of a quantized
 * model in the folder `dir`, those that are stored quantized, as they are.
 * `dir` NULL: its weights come from elsewhere. Without its weights (a plan)
 * config.json says how. ZD_ERR_CONFIG: the job asks for another format than it
 * is stored in. */
enum zd_status lora_quantize(
        const struct model_config *config, const struct lora_options *options,
        const char *dir, struct param_table *table);
/* The same of a model whose weights `source` has: as they are stored there, or
 * quantized to that format. */
enum zd_status lora_quantize_as(
        const struct weight_source *source, const char *format, bool nested,
        struct param_table *table);

/* Of an adapted model (lora.h): the base's tensors from `base`, which is taken
 * over also on failure; adapters random, or those of the PEFT adapter at
 * `path`, with its modules_to_save. */
enum zd_status weights_open_lora(
        const struct model_config *config, const struct param_table *table,
        struct weight_source *base, uint64_t seed, const char *path,
        struct weight_source *source_out);
