/* quant_state.h - how bitsandbytes quantized a weight to 4 bits: JSON in a
 * tensor of bytes. */
#pragma once

#include "base/file/json.h"
#include "kernels/quant/quant.h"

enum { QUANT_STATE_BYTES_MAX = 1 << 16 };

struct quant_state {
    enum quant_format format; /* QUANT_NF4 or QUANT_FP4 */
    enum dtype dtype;         /* of the weight before it was quantized */
    int64_t rows, columns;
    size_t block;
    bool is_nested; /* then these: */
    size_t nested_block;
    float nested_offset;
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
