/* weights.h - where weights come from and go to, tensor range by tensor range,
 * so that no process ever holds a second copy of the model. */
#ifndef ZD_MODEL_WEIGHTS_H
#define ZD_MODEL_WEIGHTS_H

#include "model/params.h"

struct quantised;

/* Something that can produce elements [begin, begin+count) of tensor `id` of a
 * table as fp32: a Hugging Face directory, random numbers, a checkpoint. The
 * first two may be read by several threads at once. */
struct weight_source {
    enum zd_status (*read)(
            void *ctx, int id, size_t begin, size_t count, float *out);
    void (*close)(void *ctx); /* may be NULL */
    void *ctx;
    /* The codes that a tensor is stored in; NULL, or NULL returned: none. */
    const struct quantised *(*stored)(void *ctx, int id);
};

/* model.safetensors, or model.safetensors.index.json and its shards (names must
 * stay inside the folder). Checks at open: every tensor of the table is there
 * once with the right shape and a float type; tensors that are not ours are
 * refused by name but for known buffers (rotary inv_freq, causal masks, a tied
 * lm_head equal in shape). GPT-2 names with or without "transformer.". A value
 * that is NaN or infinite is found when it is read: ZD_ERR_DATA naming tensor
 * and index. `config` and `table` are borrowed and must outlive the source.
 * Factors of adapters in the table are not looked for, and not read.
 * storage_out (may be NULL): the type most elements are stored in; of a model
 * in codes (quantised.h), which reads as what it decodes to, what they were. */
enum zd_status weights_open_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, enum dtype *storage_out,
        struct weight_source *source_out);

/* Are there weights in the folder, or only a config.json? */
bool weights_hf_are_there(const char *dir);

/* GPT-2 files name their tensors with or without "transformer."; export keeps
 * what was read. True where it cannot be known: save_pretrained writes it, and
 * loading will say what is wrong. */
bool weights_hf_has_prefix(const char *dir);

/* Random initial weights keyed on (seed, tensor name, element): the same at
 * every world size and stage. */
enum zd_status weights_open_random(
        uint64_t seed, const struct param_table *table,
        struct weight_source *source_out);

/* Of an adapted model (lora.h): the base's tensors from `base`, which is taken
 * over also on failure; adapters random, or those of the PEFT adapter at
 * `path`, with its modules_to_save. */
enum zd_status weights_open_lora(
        const struct model_config *config, const struct param_table *table,
        struct weight_source *base, uint64_t seed, const char *path,
        struct weight_source *source_out);

void weights_close(struct weight_source *source);

struct hf_export_options {
    enum dtype dtype;         /* element type of the files */
    uint64_t max_shard_bytes; /* 5 GB; a larger tensor gets a file of its own */
    const char *copy_from;    /* folder whose config.json, generation_config,
                                 tokenizer files are copied; NULL: none, then
                                 config.json is written from config->json */
    const char *tokenizer_from; /* folder of the tokenizer files when that is
                                   another one; NULL: copy_from */
    bool gpt2_prefix;           /* "transformer." before GPT-2 names, as
                                   save_pretrained writes them */
    json_t *quantisation; /* quantization_config of config.json; NULL: none;
                             borrowed */
};

/* Write a directory that transformers loads: config.json, tokenizer files,
 * model.safetensors (or shards and an index), streaming in pieces of bounded
 * size. Made as `dir`.tmp and renamed; an existing `dir` that we wrote before
 * is replaced, anything else there is ZD_ERR_CREATE. */
enum zd_status weights_export_hf(
        const char *dir, const struct model_config *config,
        const struct param_table *table, const struct weight_source *source,
        const struct hf_export_options *options);

/* The same by several processes: one begins, then each writes its part (of
 * `parts`, of about as many bytes each, from `source`), and when all have, one
 * ends it. Only then is there a new `dir`. */
struct hf_export_job {
    const char *dir;
    const struct model_config *config;
    const struct param_table *table;
    struct hf_export_options options;
};
enum zd_status weights_export_begin(const struct hf_export_job *job);
enum zd_status weights_export_part(
        const struct hf_export_job *job, const struct weight_source *source,
        int part, int parts);
enum zd_status weights_export_end(const struct hf_export_job *job);
/* Could a model be written to `dir` now? Its folder is made and removed again.
 * ZD_ERR_CREATE as above. */
enum zd_status weights_export_check(const char *dir);

#endif
