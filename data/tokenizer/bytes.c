/* What the tokens spell, and arrays that grow. The byte table of GPT-2:
 * printable bytes stand for themselves, the other 68 in increasing order for
 * U+0100, U+0101, ... */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

static bool is_printable(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

void byte_table_init(struct byte_table *table)
{
    int others = 0;
    for (int c = 0; c < BYTE_CHARS; c++)
        table->byte_of[c] = -1;
    for (int b = 0; b < 256; b++) {
        int c = is_printable(b) ? b : 256 + others++;
        table->char_of[b] = (uint16_t)c;
        table->byte_of[c] = (int16_t)b;
    }
}

size_t byte_table_spell(
        const struct byte_table *table, const unsigned char *bytes,
        size_t count, unsigned char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used += utf8_write(out + used, table->char_of[bytes[i]]);
    return used;
}

/* The byte that "<0xNN>" is, or -1. */
static int fallback_byte(const unsigned char *token, size_t count)
{
    static const char digits[] = "0123456789ABCDEF";
    if (count != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>' ||
        !token[3] || !token[4])
        return -1;
    const char *high = strchr(digits, token[3]);
    const char *low = strchr(digits, token[4]);
    return high && low ? (int)((high - digits) << 4 | (low - digits)) : -1;
}

static size_t decode_fallback(
        const unsigned char *token, size_t count, unsigned char *out)
{
    size_t used = 0;
    int byte = fallback_byte(token, count);
    if (byte >= 0) {
        out[0] = (unsigned char)byte;
        return 1;
    }
    for (size_t i = 0; i < count;) {
        bool is_space = count - i >= META_BYTES &&
                        memcmp(token + i, META_SPACE, META_BYTES) == 0;
        out[used++] = is_space ? ' ' : token[i];
        i += is_space ? META_BYTES : 1;
    }
    return used;
}

size_t byte_table_decode(
        const struct byte_table *table, const unsigned char *token,
        size_t count, unsigned char *out)
{
    size_t used = 0;
    unsigned step;
    if (table->is_fallback)
        return decode_fallback(token, count, out);
    for (size_t i = 0; i < count; i += step) {
        uint32_t c = utf8_read(token + i, &step);
        if (c >= BYTE_CHARS || table->byte_of[c] < 0) {
            memcpy(out, token, count);
            return count;
        }
        out[used++] = (unsigned char)table->byte_of[c];
    }
    return used;
}

void byte_buffer_append(
        struct byte_buffer *buffer, const void *data, size_t bytes)
{
    buffer->data =
            zd_grow(buffer->data, &buffer->capacity, buffer->count + bytes, 1);
    if (bytes > 0)
        memcpy(buffer->data + buffer->count, data, bytes);
    buffer->count += bytes;
}

void byte_buffer_fini(struct byte_buffer *buffer)
{
    free(buffer->data);
    memset(buffer, 0, sizeof *buffer);
}

void token_vector_push(struct token_vector *vector, int32_t id)
{
    if (vector->count == vector->capacity)
        vector->ids =
                zd_grow(vector->ids, &vector->capacity, vector->count + 1,
                        sizeof *vector->ids);
    vector->ids[vector->count++] = id;
}

void token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count)
{
    vector->ids =
            zd_grow(vector->ids, &vector->capacity, vector->count + count,
                    sizeof *vector->ids);
    if (count > 0)
        memcpy(vector->ids + vector->count, ids, count * sizeof *ids);
    vector->count += count;
}

void token_vector_fini(struct token_vector *vector)
{
    free(vector->ids);
    *vector = (struct token_vector){0};
}
