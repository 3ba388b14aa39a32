/* params.h - the table of a model's tensors: name, shape, unit and properties.
 * Its order is the order of units, and within a unit that of the forward pass;
 * ids are indices into it.
 *
 * Tensors of a unit are gathered and released together: unit 0 is the
 * embedding, units 1..L are the layers, unit L+1 is the final norm and the
 * head. A tied head uses the embedding's tensor, and so also unit 0. */
#pragma once

#include "base/number/tensor_blocks.h"
#include "kernels/quant/dequantize.h"
#include "model/config.h"
#include "model/family.h"

enum { PARAM_NAME_MAX = 96 };

/* Bits for projections of the same input, which are neighbors in the table: if
 * they are contiguous in memory too, one matmul computes them all. */
enum param_join { JOIN_QKV = 1, JOIN_GATE_UP = 2 };

enum param_init {
    PARAM_INIT_NORMAL,
    PARAM_INIT_ONES,
    PARAM_INIT_CLEAR,
    PARAM_INIT_UNIFORM
};

/* A tensor of the model, or a factor of an adapter (lora.h). */
enum param_part {
    PARAM_BASE,
    PARAM_LORA_A,
    PARAM_LORA_B,
    PARAM_LORA_MAGNITUDE
};

/* Rows or columns of a tensor in a slice (model/slice.h). */
struct slice_range {
    int64_t whole, here, count; /* first index in the whole tensor, and here */
    bool is_shared;             /* each place has it */
};
enum { SLICE_RANGES = 3 };
struct param_slice {
    int range_count;  /* 0: not cut, and the rest is 0 */
    bool by_column;   /* columns of the stored tensor are cut */
    int64_t shape[2]; /* of the whole tensor */
    struct slice_range ranges[SLICE_RANGES];
};

struct param {
    char name[PARAM_NAME_MAX]; /* Hugging Face's, canonical for the family */
    enum role role;            /* for the base; else ROLE_NONE */
    int unit;
    int dims;         /* 1 or 2 */
    int64_t shape[2]; /* as in the file; shape[1] = 1 if dims = 1 */
    size_t count;
    struct param_slice slice;    /* position in the whole tensor */
    bool trainable;              /* false: no gradient, no optimizer state */
    bool decays;                 /* weight decay applies: matrices only */
    bool is_embedding;           /* tokens or positions; not an untied head */
    bool conv1d;                 /* stored (in, out), not (out, in) */
    bool is_product;             /* in a layer: the gradient is a matmul,
                                    without sums for a bias */
    unsigned joins;              /* param_join with the tensor before it; 0:
                                    none */
    struct tensor_blocks blocks; /* elements that share a second moment in
                                    Adam-mini; numbered in the whole tensor */
    struct tensor_blocks whole_blocks; /* of a slice: the whole tensor's
                                          blocks */
    enum param_init init;
    float init_std; /* GPT-2's residual projections are scaled by
                       1/sqrt(2 L), as transformers does; UNIFORM: within
                       +- this */
    enum param_part part;
    int adapts;          /* for a factor: id of the weight; else -1 */
    float learning_rate; /* factor of the step's rate for this tensor (LoRA+) */
};

/* y += scale B (A x) beside y = W x: A is (r, in), B is (out, r), for either
 * orientation of W. With DoRA rows of W + scale B A then get the norms |W| +
 * the magnitude, (out). */
struct adapter {
    int a, b;      /* ids */
    int magnitude; /* -1: not DoRA */
    int r;         /* 0: no adapter */
    float scale;
};

struct param_table {
    struct param *params; /* owned */
    int count;
    int unit_count;             /* L + 2 */
    int *unit_first;            /* (unit_count + 1): ids of unit u are
                                   unit_first[u] .. unit_first[u+1]-1; owned */
    size_t total;               /* elements of all tensors */
    size_t trainable;           /* elements of trainable tensors */
    struct adapter *adapters;   /* (count) by id of the weight; owned. NULL: no
                                   adapters. With adapters all else is frozen
                                   except saved modules */
    struct quant_matrix *codes; /* (count) quantization of frozen weights, as
                                   (out, in); one format per model. owned. NULL:
                                   none */
    struct quant_matrix *whole_codes; /* of a slice: the whole tensors', by
                                   codes_cut; owned */
};

/* `freeze`: shell patterns (fnmatch) or substrings of tensor names.
 * ZD_ERR_CONFIG: a pattern matches nothing (names it), or everything is frozen.
 */
enum zd_status param_table_build(
        const struct model_config *config, const char *const *freeze,
        int freeze_count, struct param_table *table_out);
/* Is it the weight of a linear module (also Conv1D), including the head? */
static inline bool param_is_linear(const struct param *param)
{
    return param->dims == 2 && param->part == PARAM_BASE &&
           !param->is_embedding;
}

/* Inputs and outputs of a linear module. */
static inline int64_t param_in(const struct param *param)
{
    return param->shape[param->conv1d ? 0 : 1];
}

static inline int64_t param_out(const struct param *param)
{
    return param->shape[param->conv1d ? 1 : 0];
}

static inline bool param_is_mlp(const struct param *param)
{
    return param->role >= ROLE_GATE && param->role <= ROLE_DOWN_BIAS;
}
/* Does one matmul compute the whole gradient of a pass, so that it may round
 * it? With an MLP in pieces gradients are sums over pieces. */
static inline bool param_is_product(const struct param *param, int mlp_pieces)
{
    return param->is_product && (mlp_pieces <= 1 || !param_is_mlp(param));
}

static inline bool param_has_adapter(const struct param_table *table, int id)
{
    return table->adapters && table->adapters[id].r > 0;
}
/* Does a part of the model not train: frozen, or the base of adapters? */
static inline bool param_has_base(const struct param_table *table)
{
    return table->trainable < table->total;
}

static inline bool param_is_quantized(const struct param_table *table, int id)
{
    return table->codes && table->codes[id].rows > 0;
}
/* The quantization of the whole weight `id`. */
static inline const struct quant_matrix *param_whole_codes(
        const struct param_table *table, int id)
{
    return table->whole_codes ? &table->whole_codes[id] : &table->codes[id];
}
/* The index of weight `id`'s scales in the params of model_hooks: after all
 * tensors. */
static inline int param_scales(const struct param_table *table, int id)
{
    return table->count + id;
}
/* For weight `id`: bytes of the codes of `count` elements, and of its scales;
 * for the whole weight the bytes of scales, and the number of blocks, rows or
 * tiles with a scale (kernels/quant). */
size_t param_code_bytes(const struct param_table *table, int id, size_t count);
size_t param_scale_bytes(const struct param_table *table, int id);
size_t param_whole_scale_bytes(const struct param_table *table, int id);
size_t param_whole_scale_count(const struct param_table *table, int id);
/* The quantization of the first quantized weight; NULL: none. */
const struct quant_matrix *param_first_codes(const struct param_table *table);
/* Quantized values in a byte; 0: no weight is quantized. */
int param_codes_packed(const struct param_table *table);
const char *param_codes_name(const struct param_table *table); /* "nf4" */
/* Elements of the largest quantized weight; elements of all tensors that `id`
 * is joined with. */
size_t param_most_in_codes(const struct param_table *table);
size_t param_joined_count(const struct param_table *table, int id);
void param_table_fini(struct param_table *table);
int param_table_find(
        const struct param_table *table, const char *name); /* -1 */
