/* merge.h - weights with adapters added to them, tensor by tensor.
 *
 *   W' = W + sum over adapters of weight s B A          (GPT-2: its transpose)
 *   W' = m / |W + s B A| (W + s B A), by rows           DoRA
 *
 * in fp32 for every storage type; only the writer rounds W'. Norms of rows are
 * summed in double. A tensor from modules_to_save replaces the base's.
 *
 * Memory: the largest adapted tensor and its A and B, fp32. */
#pragma once

#include "model/adapters/peft.h"
#include "model/weights.h"

struct merge_part {
    const struct peft_part *parts; /* by id; tensors are not read */
    struct peft_source source;
    double weight;    /* may be negative */
    const char *name; /* for errors */
};
/* Makes a part from a PEFT adapter, which is borrowed. */
struct merge_part merge_part_of_peft(
        const struct peft_adapter *adapter, double weight, const char *name);

/* E0324: a weight other than 1 with DoRA or modules_to_save; two adapters that
 * save the same module; two adapters of one module, one of them DoRA. */
enum zd_status merge_check(
        const struct param_table *table, const struct merge_part *parts,
        int part_count);
/* A source of the merged weights, for one thread. Copies `parts`, borrows the
 * rest. Reading fails with E0312 if a merged weight is not finite. */
enum zd_status weights_open_merged(
        const struct weight_source *base, const struct param_table *table,
        const struct merge_part *parts, int part_count,
        struct weight_source *source_out);

/* Warns that `base`, the folder of the merged model, is quantized. */
void merge_tell_codes(const char *base);

/* An adapter to merge. */
struct adapter_choice {
    const char *dir;
    double weight;
};

/* A source of the model in `dir` with adapters merged: weights_open_hf,
 * peft_open for each, weights_open_merged. For one thread. Borrows `config` and
 * `table`, owns the rest. Without adapters: the model itself. */
enum zd_status weights_open_adapted(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct adapter_choice *choices,
        int choice_count, enum dtype *storage_out,
        struct weight_source *source_out);
