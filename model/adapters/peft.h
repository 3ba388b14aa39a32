/* peft.h - reads and writes adapters in PEFT's format: adapter_config.json and
 * adapter_model.safetensors.
 *
 * Names:   base_model.model.MODULE.lora_A.weight (r, in), .lora_B.weight
 *          (out, r), with DoRA .lora_magnitude_vector (out); a module of
 *          modules_to_save has its own names, MODULE.weight. GPT-2's Conv1D
 *          too: lora_A is (r, in) though the base's weight is (in, out).
 * Errors:  ZD_ERR_DATA (65), naming tensor and file; those of peft_config.h.
 *
 * Tied head: a saved embedding also is the head. A saved `lm_head` must be
 * equal to a saved embedding, and is refused without one. */
#pragma once

#include "base/file/safetensors.h"
#include "model/adapters/peft_config.h"

/* The tensors that an adapter may have for one tensor of the base. */
enum peft_kind {
    PEFT_A,         /* (r, in) */
    PEFT_B,         /* (out, r) */
    PEFT_MAGNITUDE, /* (out); DoRA only */
    PEFT_SAVED,     /* replaces the base's tensor */
    PEFT_UNDER,     /* the frozen weight below A, which PEFT writes for an
                       adapted head */
    PEFT_KINDS
};
struct peft_part {
    int r; /* 0: no factors for this tensor */
    double scale;
    bool has[PEFT_KINDS];
    const struct st_tensor *tensors[PEFT_KINDS]; /* in a file; NULL: none */
};

/* The shape of a kind's tensor for `param`; returns its dimensions. */
int peft_shape(
        const struct param *param, enum peft_kind kind, int r,
        int64_t shape[2]);
/* The suffix of a tensor's name after the module's; PEFT_SAVED has none. */
extern const char *const peft_ends[PEFT_KINDS];

struct peft_adapter {
    struct peft_config config;
    struct st_file *file;
    struct peft_part *parts; /* (table->count), by id; owned */
};

/* Metadata of the weights that we write: the job's rope_scaling, which replaced
 * the base's, as JSON. */
#define PEFT_ROPE_KEY "rope_scaling"

/* Adapts the base's configuration to the adapter in DIR: the vocabulary of a
 * saved embedding, if larger, and its rope_scaling. */
enum zd_status peft_extend_config(const char *dir, struct model_config *config);
/* Opens DIR and assigns every tensor. Checks that every module of the
 * configuration has its tensors, that there are no others, that shapes fit
 * config and base, and that RoPE is as in training. `config` and `table` are
 * borrowed for the call. */
enum zd_status peft_open(
        const char *dir, const struct model_config *config,
        const struct param_table *table, struct peft_adapter *adapter_out);
void peft_close(struct peft_adapter *adapter);
/* Reads values of an adapter's tensor as fp32; E0312 unless all are finite. */
enum zd_status peft_read(
        const struct peft_adapter *adapter, const struct st_tensor *tensor,
        size_t begin, size_t count, float *out);

/* --- writing --- */

/* The source of the values to write. */

struct peft_source {
    /* Elements [begin, begin + count) of the adapter's tensor `kind` for the
     * base's tensor `id`, row-major in the shapes above; PEFT_SAVED: in the
     * table's order. */
    enum zd_status (*read)(
            const void *ctx, int id, enum peft_kind kind, size_t begin,
            size_t count, float *out);
    const void *ctx;
};

/* A note on which programs cannot read the result, one line without newline;
 * empty: peft, transformers, vLLM and llama.cpp's converter all can. */
enum { PEFT_NOTE_BYTES = 400 };

/* Writes DIR for peft, transformers, vLLM and llama.cpp's converter:
 * target_modules are listed, and `use_rslora` is folded into alpha. `adapter`
 * has r, alpha, patterns and modules; `base_model` (may be NULL) is
 * base_model_name_or_path. Copies the tokenizer's files from the folder
 * `tokenizer` (may be NULL). Writes DIR.tmp and renames it, as weights_export.
 */
enum zd_status peft_write(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct peft_config *adapter,
        const char *base_model, const char *tokenizer, enum dtype dtype,
        const struct peft_source *source, char note[PEFT_NOTE_BYTES]);
