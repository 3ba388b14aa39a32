/* merge.h - weights with adapters added to them, tensor by tensor.
 *
 *   W' = W + sum over adapters of weight s B A          (GPT-2: its transpose)
 *   W' = m / |W + s B A| (W + s B A), by rows           DoRA
 *
 * in fp32, whatever the base is stored in; who writes W' rounds once. Norms of
 * rows are summed in double. A tensor of modules_to_save takes the place of the
 * base's.
 *
 * Memory: the largest adapted tensor and its A and B, fp32. */
#pragma once

#include "model/adapters/peft.h"
#include "model/weights.h"

struct merge_part {
    const struct peft_part *parts; /* by id; their tensors are not read */
    struct peft_source source;
    double weight;    /* any sign */
    const char *name; /* for errors */
};
/* Of an adapter as PEFT stores it, which is borrowed. */
struct merge_part merge_part_of_peft(
        const struct peft_adapter *adapter, double weight, const char *name);

/* E0324: a weight other than 1 with DoRA or modules_to_save; two adapters that
 * save one module, or of which one is DoRA, in one place. */
enum zd_status merge_check(
        const struct param_table *table, const struct merge_part *parts,
        int part_count);
/* A source of the merged weights, for one thread. Everything is borrowed but
 * `parts`, which are copied. Reading fails with E0312 where a merged weight is
 * not finite. */
enum zd_status weights_open_merged(
        const struct weight_source *base, const struct param_table *table,
        const struct merge_part *parts, int part_count,
        struct weight_source *source_out);

/* Warn that `base`, the folder of a model that is merged, is quantized. */
void merge_tell_codes(const char *base);

/* An adapter by its folder. */
struct adapter_choice {
    const char *dir;
    double weight;
};

/* A source of the model in `dir` with adapters added: weights_open_hf,
 * peft_open of each and weights_open_merged. For one thread; `config` and
 * `table` are borrowed, all else is the source's own. No adapter: the model
 * itself. */
enum zd_status weights_open_adapted(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct adapter_choice *choices,
        int choice_count, enum dtype *storage_out,
        struct weight_source *source_out);
