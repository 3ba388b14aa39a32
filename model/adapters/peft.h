/* peft.h - an adapter as PEFT stores it: adapter_config.json and
 * adapter_model.safetensors, read and written.
 *
 * Names:   base_model.model.MODULE.lora_A.weight (r, in), .lora_B.weight
 *          (out, r), with DoRA .lora_magnitude_vector (out); a module of
 *          modules_to_save has its own names, MODULE.weight. GPT-2's Conv1D
 *          too: lora_A is (r, in) though the base's weight is (in, out).
 * Errors:  ZD_ERR_DATA (65), naming tensor and file; what config.h refuses.
 *
 * A tied head: the embedding in modules_to_save is followed by both sides. An
 * `lm_head` beside it must be equal to it, and alone is refused. */
#pragma once

#include "base/file/safetensors.h"
#include "model/adapters/peft_config.h"

/* What an adapter holds for one tensor of the base. */
enum peft_kind {
    PEFT_A,         /* (r, in) */
    PEFT_B,         /* (out, r) */
    PEFT_MAGNITUDE, /* (out); DoRA only */
    PEFT_SAVED,     /* in place of the base's tensor */
    PEFT_UNDER,     /* beneath A, as PEFT writes it of an adapted head: what the
                       adapter was trained on. Not trained */
    PEFT_KINDS
};
struct peft_part {
    int r; /* 0: no factors for this tensor */
    double scale;
    bool has[PEFT_KINDS];
    const struct st_tensor *tensors[PEFT_KINDS]; /* of a file; NULL: none */
};

/* The shape of a kind's tensor for `param`; returns its dimensions. */
int peft_shape(
        const struct param *param, enum peft_kind kind, int r,
        int64_t shape[2]);
/* The end of a tensor's name, after the module's; PEFT_SAVED has none. */
extern const char *const peft_ends[PEFT_KINDS];

struct peft_adapter {
    struct peft_config config;
    struct st_file *file;
    struct peft_part *parts; /* (table->count), by id; owned */
};

/* In the metadata of the weights that we write: the table of rope_scaling that
 * a job put in place of the base's, as JSON. */
#define PEFT_ROPE_KEY "rope_scaling"

/* The base's configuration as the adapter in DIR was trained on it: with as
 * many rows of the vocabulary as the embedding that it saves, where that is
 * more, and with its table of rope_scaling. */
enum zd_status peft_extend_config(const char *dir, struct model_config *config);
/* Open DIR and place every tensor of it; each module that the configuration
 * names is there, each tensor that is there is named by it, shapes are those of
 * config and base, and the base's heads turn as they did in training. `config`
 * and `table` are borrowed for the call. */
enum zd_status peft_open(
        const char *dir, const struct model_config *config,
        const struct param_table *table, struct peft_adapter *adapter_out);
void peft_close(struct peft_adapter *adapter);
/* The values of one of a part's tensors as fp32, all finite (E0312). */
enum zd_status peft_read(
        const struct peft_adapter *adapter, const struct st_tensor *tensor,
        size_t begin, size_t count, float *out);

/* --- writing --- */

/* Who makes the values of what is written. */

struct peft_source {
    /* Elements [begin, begin + count) of the adapter's tensor `kind` for the
     * base's tensor `id`, row-major in the shapes above; PEFT_SAVED: as the
     * table has it. */
    enum zd_status (*read)(
            const void *ctx, int id, enum peft_kind kind, size_t begin,
            size_t count, float *out);
    const void *ctx;
};

/* Who cannot read what is written, as one line without its end; empty: peft,
 * transformers, vLLM and llama.cpp's converter all can. */
enum { PEFT_NOTE_BYTES = 400 };

/* Write DIR so that peft, transformers, vLLM and llama.cpp's converter read
 * it: target_modules spelled out, `use_rslora` folded into alpha. `adapter`
 * says r, alpha, patterns and which modules; `base_model` (may be NULL) is
 * base_model_name_or_path. The tokenizer's files in the folder `tokenizer` (may
 * be NULL) are copied. Made as DIR.tmp and renamed, as weights_export. */
enum zd_status peft_write(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct peft_config *adapter,
        const char *base_model, const char *tokenizer, enum dtype dtype,
        const struct peft_source *source, char note[PEFT_NOTE_BYTES]);
