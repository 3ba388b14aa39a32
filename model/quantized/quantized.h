/* quantized.h - weights that a file stores quantized.
 *
 *   bitsandbytes, 4-bit  W U8 (or its bytes viewed as another type): codes;
 *                        W.absmax, W.quant_map, W.nested_absmax,
 *                        W.nested_quant_map,
 *                        W.quant_state.bitsandbytes__nf4|fp4
 *   bitsandbytes, 8-bit  W I8, MODULE.SCB, MODULE.weight_format
 *   DeepSeek's fp8       W F8_E4M3, W_scale_inv
 *
 * W is NAME.weight of module NAME. The tensors beside it determine the format;
 * they may be in other files.
 * Errors: E0330, E0331 (65), naming tensor and file. */
#pragma once

#include "base/file/json.h"
#include "base/file/safetensors.h"
#include "kernels/quant/dequantize.h"

/* A tensor and its file, and checks of it. */
struct stored {
    const struct st_file *file; /* both NULL: none */
    const struct st_tensor *tensor;
};

/* Returns ZD_ERR_DATA with the file's name. */
#define stored_fail(stored, code, ...)                                         \
    (ZD_BAD(code, __VA_ARGS__), zd_fail_where("%s", (stored).file->path))
/* Checks elements [begin, begin + count) that were read: E0312 unless all are
 * finite. */
enum zd_status stored_check_finite(
        struct stored stored, size_t begin, size_t count, const float *values);
/* Fails with `code` unless it has the shape; `asks`: who requires it. */
enum zd_status stored_check_shape(
        struct stored stored, const char *code, const char *asks, int dims,
        const int64_t *shape);

/* How bitsandbytes quantized a weight to 4 bits: JSON in a tensor of bytes. */
enum { QUANT_STATE_BYTES_MAX = 1 << 16 };

struct quant_state {
    struct quant_matrix matrix;
    enum dtype dtype;    /* of the weight before it was quantized */
    float nested_offset; /* only with matrix.nested_block */
};

/* E0331, ZD_ERR_DATA: not such JSON, an unknown key, a block that is not a
 * power of two from 32 to 4096, an invalid shape. `name` is for messages. */
enum zd_status quant_state_parse(
        const char *text, size_t bytes, const char *name,
        struct quant_state *state_out);
/* The same as text, as bitsandbytes writes it with Python's json. The caller
 * frees it. */
char *quant_state_text(const struct quant_state *state);

/* The tensors that may be beside a weight. */
enum quant_beside {
    BESIDE_ABSMAX,
    BESIDE_QUANT_MAP,
    BESIDE_NESTED_ABSMAX,
    BESIDE_NESTED_QUANT_MAP,
    BESIDE_STATE_NF4,
    BESIDE_STATE_FP4,
    BESIDE_SCB,
    BESIDE_WEIGHT_FORMAT,
    BESIDE_SCALE_INV,
    BESIDES
};

/* Suffixes of their names, after the module's. */
extern const char *const quantized_ends[BESIDES];

/* Is `name` a tensor beside a weight? Then writes the weight's name
 * ("NAME.weight") to `weight`. */
bool quantized_split_name(
        const char *name, char *weight, size_t bytes,
        enum quant_beside *beside_out);

struct quantized {
    struct quant_state state; /* for all formats; int8 and fp8: dtype bf16 */
    struct stored codes, absmax;
    float values[16]; /* 4-bit, by code */
    float *map;       /* (256) nested; owned */
    float *scales;    /* nested absmax; SCB; tiles' by rows; owned */
};

/* Opens the weight `codes` with the tensors beside it. */
enum zd_status quantized_open(
        struct stored codes, const struct stored beside[BESIDES],
        struct quantized *weight_out);
void quantized_fini(struct quantized *weight);

/* Reads elements [begin, begin + count) in storage order as fp32. Several
 * threads may read at once. Does not check that values are finite. */
enum zd_status quantized_read(
        const struct quantized *weight, size_t begin, size_t count, float *out);
/* The same for the transpose, (columns, rows). */
enum zd_status quantized_read_transposed(
        const struct quantized *weight, size_t begin, size_t count, float *out);

/* Reads codes of elements [begin, begin + count), from a whole byte on, and all
 * scales, packed as in dequantize.h. E0330: the file's values differ from the
 * format's own, or a code is NaN. */
enum zd_status quantized_read_codes(
        const struct quantized *weight, size_t begin, size_t count,
        uint8_t *codes);
enum zd_status quantized_read_scales(
        const struct quantized *weight, void *scales);
