/* arrays.h - the arrays of a shard: their names, types and lengths, and how the
 * manifest lists them, so that a reader opens only the shards it needs, and a
 * damaged array can be named. Internal to the checkpoint.
 *
 * In a shard:
 *     m_scale/model.layers.0.mlp.up_proj.weight@65536
 *     kind    tensor (and columns)   its first element
 *
 * In the manifest, an entry for each range of a tensor:
 *     model.norm.weight@0+64 master F32 0f3a.. m F32 77c1.. v F32 9e02..
 *     tensor, first element and count; then kind, type and the first characters
 *     of the xxh3-128 of each array */
#pragma once

#include "model/slice.h"
#include "zero/zero.h"

/* With tensor parallelism a shard may have only some columns of a tensor. They
 * form a matrix, and arrays count its elements.
 *
 *     master/model.layers.0.mlp.down_proj.weight[512:1024]@65536
 *     m/h.0.attn.c_attn.weight[0:192,768:960,1536:1728]@0
 *
 * [C0:C1,..]: columns C0 to C1 - 1 of the stored tensor, ascending. */
struct columns {
    int count; /* 0: all, elements are the tensor's */
    struct {
        int64_t begin, end;
    } ranges[SLICE_RANGES];
};

/* The columns of a slice that is cut by columns; else {0}. */
struct columns columns_of(const struct param_slice *slice);
/* "[0:192,768:960]"; "": all. */
enum { COLUMNS_TEXT = SLICE_RANGES * 42 };
/* A total order. */
int columns_compare(const struct columns *a, const struct columns *b);
/* The columns as a slice of a tensor of that shape; if all: the tensor, of any
 * shape. Sets only the fields that param_slice_next reads. */
struct param columns_matrix(
        const struct columns *columns, const int64_t shape[2]);
/* The number of elements of such a matrix before element `whole` of the tensor.
 */
size_t columns_before(const struct param *matrix, size_t whole);

enum array_kind {
    ARRAY_MASTER, /* weights */
    ARRAY_M,
    ARRAY_M_SCALE, /* of an 8-bit lane */
    ARRAY_V,
    ARRAY_V_SCALE,
    ARRAY_V_BLOCKS, /* Adam-mini's v */
    ARRAY_KINDS
};
static inline enum array_kind array_of_lane(enum optim_lane lane)
{
    return lane == OPTIM_M ? ARRAY_M : ARRAY_V;
}
static inline enum array_kind array_scale_of_lane(enum optim_lane lane)
{
    return lane == OPTIM_M ? ARRAY_M_SCALE : ARRAY_V_SCALE;
}
/* The array's lane; ZERO_WEIGHTS: none. */
int array_lane(enum array_kind kind);
const char *array_kind_name(enum array_kind kind);
/* Blocks always refer to the whole tensor. */
enum { ARRAY_NAME = PARAM_NAME_MAX + COLUMNS_TEXT + 48 };
void array_name(
        char out[ARRAY_NAME], enum array_kind kind, const char *tensor,
        const struct columns *columns, size_t begin);

/* The type and length of an array for `count` elements of a tensor. */
struct array_shape {
    const char *type; /* safetensors' name */
    size_t values;    /* 0: no such array */
    size_t bytes;
};
/* `blocks`: Adam-mini's blocks of the whole tensor, saved with its first range;
 * 0 for other ranges. */
struct array_shape array_shape(
        enum array_kind kind, enum dtype weight_type,
        const struct optim_layout *layout, size_t count, size_t blocks);

/* The name in manifest.json and messages: "8bit". */
const char *format_name(enum optim_format format);
/* safetensors' name for the type of a lane's values; "": none. */
const char *format_type(enum optim_format format);
/* The format with this type; OPTIM_NONE: none. */
enum optim_format format_of_type(const char *type);

enum { HELD_DIGEST = 16, HELD_TEXT = PARAM_NAME_MAX + COLUMNS_TEXT + 400 };

struct held_array {
    enum array_kind kind;
    char type[12];
    char digest[HELD_DIGEST + 1];
};

/* Elements [begin, begin+count) of a tensor, or of some of its columns. */
struct held {
    char name[PARAM_NAME_MAX];
    struct columns columns;
    size_t begin, count;
    int array_count;
    struct held_array arrays[ARRAY_KINDS];
};

/* Stores only the first characters of `digest`. */
void held_add(
        struct held *held, enum array_kind kind, const char *type,
        const char *digest);
void held_text(const struct held *held, char out[HELD_TEXT]);
/* False: `text` (may be NULL) is not such an entry. */
bool held_parse(const char *text, struct held *out);
