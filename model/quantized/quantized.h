/* quantized.h - a weight that a file stores quantized.
 *
 *   bitsandbytes, 4-bit  W U8 (or its bytes viewed as another type): codes;
 *                        W.absmax, W.quant_map, W.nested_absmax,
 *                        W.nested_quant_map,
 *                        W.quant_state.bitsandbytes__nf4|fp4
 *   bitsandbytes, 8-bit  W I8, MODULE.SCB, MODULE.weight_format
 *   DeepSeek's fp8       W F8_E4M3, W_scale_inv
 *
 * W is NAME.weight of module NAME. Which it is follows from the tensors beside
 * it. All of it may be spread over files.
 * Errors: E0330, E0331 (65), naming tensor and file. */
#pragma once

#include "base/file/json.h"
#include "base/file/safetensors.h"
#include "kernels/quant/dequantize.h"

/* A tensor and the file that holds it, and what may be wrong with it. */
struct stored {
    const struct st_file *file; /* NULLs: there is none */
    const struct st_tensor *tensor;
};

/* ZD_ERR_DATA, with the file. */
#define stored_fail(stored, code, ...)                                         \
    (ZD_BAD(code, __VA_ARGS__), zd_fail_where("%s", (stored).file->path))
/* Elements [begin, begin + count) that were read: E0312 unless all are finite.
 */
enum zd_status stored_check_finite(
        struct stored stored, size_t begin, size_t count, const float *values);
/* `code` unless it has that shape, which someone "asks for". */
enum zd_status stored_check_shape(
        struct stored stored, const char *code, const char *asks, int dims,
        const int64_t *shape);

/* How bitsandbytes quantized a weight to 4 bits: JSON in a tensor of bytes. */
enum { QUANT_STATE_BYTES_MAX = 1 << 16 };

struct quant_state {
    struct quant_matrix matrix;
    enum dtype dtype;    /* of the weight before it was quantized */
    float nested_offset; /* with matrix.nested_block */
};

/* E0331, ZD_ERR_DATA: text that is not such JSON, an unknown key, a block that
 * is not a power of two from 32 to 4096, an illegal shape. `name` says
 * where. */
enum zd_status quant_state_parse(
        const char *text, size_t bytes, const char *name,
        struct quant_state *state_out);
/* The same as bitsandbytes writes it: its keys in its order, as Python's json
 * has them. New memory; the caller frees it. */
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

/* The ends of their names, after the module's. */
extern const char *const quantized_ends[BESIDES];

/* Is `name` that of something beside a weight? Then its name without the end is
 * written to `weight` ("NAME.weight"), of `bytes`. */
bool quantized_split_name(
        const char *name, char *weight, size_t bytes,
        enum quant_beside *beside_out);

struct quantized {
    struct quant_state state; /* of all formats; int8 and fp8 were bf16 */
    struct stored codes, absmax;
    float values[16]; /* 4-bit, by code */
    float *map;       /* (256) nested; owned */
    float *scales;    /* nested absmax; SCB; of tiles, by rows; owned */
};

/* Open the weight `codes` with the tensors beside it. */
enum zd_status quantized_open(
        struct stored codes, const struct stored beside[BESIDES],
        struct quantized *weight_out);
void quantized_fini(struct quantized *weight);

/* Elements [begin, begin + count) of the stored order as fp32. Several threads
 * may read at once. Finite or not is the caller's to see. */
enum zd_status quantized_read(
        const struct quantized *weight, size_t begin, size_t count, float *out);
/* The same of the transpose, (columns, rows). */
enum zd_status quantized_read_transposed(
        const struct quantized *weight, size_t begin, size_t count, float *out);

/* What of it a GPU or the CPU decodes: the codes of elements [begin, begin +
 * count), from a whole byte on, and all scales as dequantize.h has them. E0330:
 * decoded by other values than the format's own, or to a NaN. */
enum zd_status quantized_read_codes(
        const struct quantized *weight, size_t begin, size_t count,
        uint8_t *codes);
enum zd_status quantized_read_scales(
        const struct quantized *weight, void *scales);
