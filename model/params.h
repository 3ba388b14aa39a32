/* params.h - every tensor of a model: name, shape, unit and properties. The
 * order of the table is the order of units and within them of the forward pass;
 * ids are indices into it.
 *
 * A unit is what is gathered and released together: unit 0 the embedding, units
 * 1..L the layers, unit L+1 the final norm and the head. A tied head uses the
 * embedding's tensor, and so unit 0 too. */
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

/* Rows of a tensor, or columns, that a slice has (model/slice.h). */
struct slice_range {
    int64_t whole, here, count; /* the first of the whole tensor, and here */
    bool is_shared;             /* each place has it */
};
enum { SLICE_RANGES = 3 };
struct param_slice {
    int range_count;  /* 0: it is not cut, and the rest is 0 */
    bool by_column;   /* columns of the tensor as it is stored are cut */
    int64_t shape[2]; /* of the whole tensor */
    struct slice_range ranges[SLICE_RANGES];
};

struct param {
    char name[PARAM_NAME_MAX]; /* Hugging Face's, canonical for the family */
    enum role role;            /* of the base; else ROLE_NONE */
    int unit;
    int dims;         /* 1 or 2 */
    int64_t shape[2]; /* as in the file; shape[1] = 1 when dims = 1 */
    size_t count;
    struct param_slice slice;    /* where it lies in the whole tensor */
    bool trainable;              /* false: no gradient, no optimizer state */
    bool decays;                 /* weight decay applies: matrices only */
    bool is_embedding;           /* tokens or positions; not an untied head */
    bool conv1d;                 /* stored (in, out), not (out, in) */
    bool is_product;             /* of a layer: its gradient is a matmul,
                                    without sums for a bias */
    unsigned joins;              /* param_join in which it goes on from the
                                    tensor before it; 0: from none */
    struct tensor_blocks blocks; /* what shares a second moment in Adam-mini;
                                    numbered in the whole tensor */
    struct tensor_blocks whole_blocks; /* of a slice: those of the tensor */
    enum param_init init;
    float init_std; /* GPT-2's residual projections are scaled by
                       1/sqrt(2 L), as transformers does; UNIFORM: within
                       +- this */
    enum param_part part;
    int adapts;          /* of a factor: id of the weight; else -1 */
    float learning_rate; /* of this tensor, times the step's (LoRA+) */
};

/* y += scale B (A x) beside y = W x: A is (r, in), B is (out, r), whichever way
 * round W is stored. DoRA: then rows of W + scale B A have the norms |W| + the
 * magnitude, (out). */
struct adapter {
    int a, b;      /* ids */
    int magnitude; /* -1: not DoRA */
    int r;         /* 0: the tensor has none */
    float scale;
};

struct param_table {
    struct param *params; /* owned */
    int count;
    int unit_count;             /* L + 2 */
    int *unit_first;            /* (unit_count + 1): ids of unit u are
                                   unit_first[u] .. unit_first[u+1]-1; owned */
    size_t total;               /* elements of all tensors */
    size_t trainable;           /* elements of those that train */
    struct adapter *adapters;   /* (count) by id of the weight; owned. NULL: a
                                   model without. With them all else is frozen,
                                   but modules that are saved */
    struct quant_matrix *codes; /* (count) how frozen weights are quantized,
                                   as (out, in); one format in a model. owned.
                                   NULL: none is */
    struct quant_matrix *whole_codes; /* of a slice: those of whole tensors, by
                                   codes_cut; owned */
};

/* `freeze`: shell patterns (fnmatch) or substrings of tensor names; a pattern
 * that matches nothing is ZD_ERR_CONFIG naming it. Freezing everything too. */
enum zd_status param_table_build(
        const struct model_config *config, const char *const *freeze,
        int freeze_count, struct param_table *table_out);
/* The weight of a linear module (Conv1D too), the head included. */
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
/* Does one matmul make the whole gradient of a pass, so that it may round it?
 * That of an MLP in pieces is a sum of theirs. */
static inline bool param_is_product(const struct param *param, int mlp_pieces)
{
    return param->is_product && (mlp_pieces <= 1 || !param_is_mlp(param));
}

static inline bool param_has_adapter(const struct param_table *table, int id)
{
    return table->adapters && table->adapters[id].r > 0;
}
/* Is a part of the given model unchanged: frozen, or the base of adapters? */
static inline bool param_has_base(const struct param_table *table)
{
    return table->trainable < table->total;
}

static inline bool param_is_quantized(const struct param_table *table, int id)
{
    return table->codes && table->codes[id].rows > 0;
}
/* How the whole of weight `id` is quantized. */
static inline const struct quant_matrix *param_whole_codes(
        const struct param_table *table, int id)
{
    return table->whole_codes ? &table->whole_codes[id] : &table->codes[id];
}
/* Where the scales of weight `id` are among the places that the model is given
 * (model_hooks): after those of all tensors. */
static inline int param_scales(const struct param_table *table, int id)
{
    return table->count + id;
}
/* Of weight `id`: bytes of the codes of `count` elements, and of what decodes
 * them; of the whole weight what decodes it, and how many blocks, rows or tiles
 * have a scale (kernels/quant). */
size_t param_code_bytes(const struct param_table *table, int id, size_t count);
size_t param_scale_bytes(const struct param_table *table, int id);
size_t param_whole_scale_bytes(const struct param_table *table, int id);
size_t param_whole_scale_count(const struct param_table *table, int id);
/* Of the first quantized weight; NULL: there is none. */
const struct quant_matrix *param_first_codes(const struct param_table *table);
/* Quantized values in a byte; 0: no weight is quantized. */
int param_codes_packed(const struct param_table *table);
const char *param_codes_name(const struct param_table *table); /* "nf4" */
/* Elements of the largest quantized weight; of all that `id` is joined with. */
size_t param_most_in_codes(const struct param_table *table);
size_t param_joined_count(const struct param_table *table, int id);
void param_table_fini(struct param_table *table);
int param_table_find(
        const struct param_table *table, const char *name); /* -1 */
