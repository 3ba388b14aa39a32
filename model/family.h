/* family.h - the description of a family of models. One file of model/families/
 * holds one: the keys of its config.json, its tensors and their names, and what
 * differs in its arithmetic. The rest of the program asks the fields of
 * `config->family`, never which family it is. families/families.h lists
 * them. */
#pragma once

#include "base/status.h"
#include "kernels/elementwise/activation.h"
#include "kernels/norm/norm.h"

#include <stdbool.h>
#include <stddef.h>

struct config_reader;
struct model_config;

/* --- keys of config.json -------------------------------------------------- */

enum config_kind {
    CONFIG_KNOWN, /* read elsewhere, or irrelevant for the arithmetic */
    CONFIG_INT,   /* from 1 to `max` */
    CONFIG_BOOL,
    CONFIG_REAL,
    CONFIG_TOKEN,   /* an id, or a list whose first counts; -1: none */
    CONFIG_DROPOUT, /* a value above 0 sets has_dropout; not applied */
    /* unsupported, unless absent, null, or: */
    CONFIG_NULL,
    CONFIG_FALSE, /* false, 0, an empty list or table */
    CONFIG_ONE,   /* true, 1 */
    CONFIG_SILU,
    CONFIG_GELU_TANH
};
enum {
    CONFIG_WRITTEN = 1,     /* exported even if it was absent */
    CONFIG_NULL_DERIVES = 2 /* null means 0: `settle` derives it, or none */
};
struct config_key {
    const char *name; /* NULL ends a list; the first row with a name counts */
    enum config_kind kind;
    size_t field;  /* of struct model_config (CONFIG_AT) */
    double absent; /* default of transformers' class */
    int max;
    unsigned flags;
};
/* Rows of exported keys: a size; a size that is derived if null; whether the
 * head is tied. */
#define CONFIG_SIZE(NAME, FIELD, ABSENT, MOST)                                 \
    {                                                                          \
        NAME, CONFIG_INT, CONFIG_AT(FIELD), ABSENT, MOST, CONFIG_WRITTEN       \
    }
#define CONFIG_SIZE_OR_NULL(NAME, FIELD, ABSENT, MOST)                         \
    {                                                                          \
        NAME, CONFIG_INT, CONFIG_AT(FIELD), ABSENT, MOST,                      \
                CONFIG_WRITTEN | CONFIG_NULL_DERIVES                           \
    }
#define CONFIG_TIED(ABSENT)                                                    \
    {                                                                          \
        "tie_word_embeddings", CONFIG_BOOL, CONFIG_AT(tied), ABSENT, 0,        \
                CONFIG_WRITTEN                                                 \
    }
#define CONFIG_AT(name) offsetof(struct model_config, name)

/* Which layers slide (config_layers.c). */
enum window_rule {
    WINDOW_NONE,
    WINDOW_ALL,    /* every layer, if there is a window */
    WINDOW_LAST,   /* with use_sliding_window, from max_window_layers on */
    WINDOW_NOPE,   /* with use_sliding_window, layers without rotation */
    WINDOW_PATTERN /* all but every sliding_window_pattern-th */
};

/* --- tensors -------------------------------------------------------------- */

/* The role of a tensor. A bias follows its weight. Norms in a layer:
 *
 *     x2 = x + POST1(attention(NORM1(x))),  out = x2 + POST2(mlp(NORM2(x2)))
 *
 * if the family has a row for them. */
enum role {
    ROLE_NONE, /* a factor of an adapter */
    ROLE_TOKENS,
    ROLE_POSITIONS,
    ROLE_NORM1,
    ROLE_NORM1_BIAS,
    ROLE_Q, /* of a fused projection q, k and v */
    ROLE_Q_BIAS,
    ROLE_K,
    ROLE_K_BIAS,
    ROLE_V,
    ROLE_V_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_O,
    ROLE_O_BIAS,
    ROLE_POST1,
    ROLE_POST1_BIAS,
    ROLE_NORM2,
    ROLE_NORM2_BIAS,
    ROLE_GATE, /* without a gate: the MLP's first projection */
    ROLE_GATE_BIAS,
    ROLE_UP,
    ROLE_UP_BIAS,
    ROLE_DOWN,
    ROLE_DOWN_BIAS,
    ROLE_POST2,
    ROLE_POST2_BIAS,
    ROLE_FINAL_NORM,
    ROLE_FINAL_NORM_BIAS,
    ROLE_HEAD,
    ROLES
};
enum tensor_kind {
    TENSOR_EMBEDDING, /* (rows, columns) */
    TENSOR_LINEAR,    /* (rows, columns); transposed in a conv1d family */
    TENSOR_NORM,      /* (rows), initially 1; RMSNORM_ONE_PLUS: 0 */
    TENSOR_BIAS       /* (rows), initially 0 */
};
enum extent {
    EXTENT_V,
    EXTENT_POSITIONS,
    EXTENT_C,
    EXTENT_F,
    EXTENT_2F,  /* gate, then up */
    EXTENT_Q,   /* heads * head_dim */
    EXTENT_KV,  /* kv_heads * head_dim */
    EXTENT_QKV, /* Q + 2 KV */
    EXTENT_D,
    EXTENTS
};
enum {
    TENSOR_BY_HEAD = 1, /* Adam-mini: the rows of a head share a moment */
    TENSOR_RESIDUAL = 2 /* initial deviation times 1 / sqrt(2 L) */
};
struct tensor_row {
    const char *name; /* within the layer; NULL ends a list */
    enum role role;
    enum tensor_kind kind;
    enum extent rows, columns;
    size_t when;    /* a bool of struct model_config; 0: always */
    unsigned joins; /* enum param_join */
    unsigned flags;
};

/* --- a family ------------------------------------------------------------- */

struct model_family {
    const char *name;         /* model_type */
    const char *architecture; /* of transformers */

    /* config.json; `settle` derives the other fields and checks */
    const struct config_key *keys;
    enum zd_status (*settle)(
            const struct config_reader *reader, struct model_config *config);
    const char *head_dim_keys; /* the keys that determine head_dim, for
                                  errors */
    enum window_rule window;
    int window_tokens;  /* default; 0: none */
    int window_pattern; /* default for WINDOW_PATTERN */
    bool layer_types;   /* the class reads the key; else it must agree with the
                           rule */
    double partial_rotary; /* default of partial_rotary_factor; 0: the class
                              does not read the key */
    double rope_theta;     /* default; 0: 10000 */
    bool longrope; /* the only rope_type besides default; "su" and "yarn" are
                      older names */
    bool qkv_bias, qk_norm; /* in every model of the family */
    bool qk_norm_whole; /* all heads of q are one row, all of k another (OLMo
                           2) */

    /* tensors: unit 0, each layer, before the head; names are layer_prefix N .
     * name, in files optionally after file_prefix (NULL: never) */
    const struct tensor_row *embeddings, *layer, *last;
    const char *layer_prefix, *file_prefix;
    bool conv1d;                 /* weights of layers are stored (in, out) */
    const char *peft_targets[2]; /* PEFT's default target_modules */

    /* arithmetic */
    bool layer_norm; /* else RMSNorm (no means) of norm_form */
    enum rmsnorm_form norm_form;
    bool rotary;    /* else positions are learned, up to max_positions */
    unsigned fused; /* enum param_join: projections that are one tensor */
    bool gated_mlp; /* gate and up; else a single first projection */
    enum gate gate; /* its activation */
    bool embedding_scale_rounded; /* to the compute type */
};

/* Does a layer have a tensor of this role? Only for roles without `when`. */
static inline bool family_has(const struct model_family *family, enum role role)
{
    const struct tensor_row *row = family->layer;
    while (row->name && row->role != role)
        row++;
    return row->name;
}
