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

/* The bytes a token stands for: those of its characters when all of them are in
 * the table, else its own UTF-8. `out` has room for `count` bytes. */
static size_t byte_table_decode(
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
    ZD_GROW(buffer->data, buffer->capacity, buffer->count + bytes);
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
        ZD_GROW(vector->ids, vector->capacity, vector->count + 1);
    vector->ids[vector->count++] = id;
}

void token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count)
{
    ZD_GROW(vector->ids, vector->capacity, vector->count + count);
    if (count > 0)
        memcpy(vector->ids + vector->count, ids, count * sizeof *ids);
    vector->count += count;
}

void token_vector_fini(struct token_vector *vector)
{
    free(vector->ids);
    *vector = (struct token_vector){0};
}

/* --- vocabulary ---------------------------------------------------------- */

void vocab_init(struct vocab *vocab, int capacity)
{
    uint32_t slots = 1024;
    while (slots < 2 * (uint32_t)capacity)
        slots *= 2;
    vocab->tokens = zd_array((size_t)capacity + 1, sizeof *vocab->tokens);
    vocab->slots = zd_array(slots, sizeof *vocab->slots);
    vocab->slot_mask = slots - 1;
    vocab->capacity = capacity;
}

void vocab_fini(struct vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->slots);
    byte_buffer_fini(&vocab->text);
}

/* The slot that holds the spelling, or the free one where it belongs. */
static uint32_t *slot_of(
        const struct vocab *vocab, const void *spelling, size_t bytes)
{
    uint32_t at = (uint32_t)(text_hash(spelling, bytes) >> 32);
    for (;; at++) {
        uint32_t *slot = &vocab->slots[at & vocab->slot_mask];
        if (*slot == 0)
            return slot;
        const struct vocab_token *token = &vocab->tokens[*slot - 1];
        if (token->spelling_bytes == bytes &&
            memcmp(vocab->text.data + token->spelling, spelling, bytes) == 0)
            return slot;
    }
}

int vocab_find(const struct vocab *vocab, const void *spelling, size_t bytes)
{
    return (int)*slot_of(vocab, spelling, bytes) - 1;
}

void vocab_set_decoded(
        struct vocab *vocab, const struct byte_table *table,
        const void *spelling, size_t bytes, int id)
{
    struct vocab_token *token = &vocab->tokens[id];
    struct byte_buffer *text = &vocab->text;
    size_t begin = text->count;
    byte_buffer_append(text, spelling, bytes); /* as much at most */
    token->decoded = (uint32_t)begin;
    token->decoded_bytes = (uint32_t)byte_table_decode(
            table, spelling, bytes, text->data + begin);
    text->count = begin + token->decoded_bytes;
}

enum zd_status vocab_add(
        struct vocab *vocab, const struct byte_table *table,
        const char *spelling, size_t bytes, int id)
{
    struct vocab_token *token = &vocab->tokens[id];
    struct byte_buffer *text = &vocab->text;
    size_t begin = text->count;
    if (token->present)
        return ZD_BAD(
                "E0404", "tokens `%.*s` and `%.*s` have one id, %d",
                (int)token->spelling_bytes, text->data + token->spelling,
                (int)bytes, spelling, id);
    byte_buffer_append(text, spelling, bytes);
    *slot_of(vocab, spelling, bytes) = (uint32_t)id + 1;
    token->present = true;
    token->spelling = (uint32_t)begin;
    token->spelling_bytes = (uint32_t)bytes;
    vocab_set_decoded(vocab, table, spelling, bytes, id);
    if (id >= vocab->ids)
        vocab->ids = id + 1;
    if ((int)bytes > vocab->longest)
        vocab->longest = (int)bytes;
    vocab->count++;
    return ZD_OK;
}

void merges_fini(struct merges *merges)
{
    free(merges->slots);
    free(merges->result);
}
