#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        return ZD_FAIL(
                ZD_ERR_DATA, "E0404",
                "tokens `%.*s` and `%.*s` have one id, %d",
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

/* --- merges -------------------------------------------------------------- */

void merges_init(struct merges *merges, int count)
{
    int bits = 4;
    while ((UINT64_C(1) << bits) < (uint64_t)count * 3 / 2 + 1)
        bits++;
    size_t slots = (size_t)1 << bits;
    merges->slots = zd_array(slots, sizeof *merges->slots);
    merges->result = zd_array((size_t)count + 1, sizeof *merges->result);
    merges->shift = 64 - bits;
    merges->mask = slots - 1;
    merges->count = count;
    memset(merges->slots, 0xff, slots * sizeof *merges->slots);
}

void merges_fini(struct merges *merges)
{
    free(merges->slots);
    free(merges->result);
}

void merges_add(struct merges *merges, int left, int right, int rank, int id)
{
    uint64_t key = (uint64_t)left << 21 | (uint64_t)right;
    uint64_t at = key * 0x9e3779b97f4a7c15u >> merges->shift;
    while (merges->slots[at] != UINT64_MAX && merges->slots[at] >> 22 != key)
        at = (at + 1) & merges->mask;
    merges->slots[at] = key << 22 | (uint64_t)rank;
    merges->result[rank] = id;
}

void merges_finish(
        struct merges *merges, const struct vocab *vocab,
        const struct byte_table *table)
{
    merges->characters = table->is_fallback ? vocab : NULL;
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b, spelling[8];
        size_t bytes = table->is_fallback
                               ? (size_t)snprintf(
                                         (char *)spelling, sizeof spelling,
                                         "<0x%02X>", (unsigned)b)
                               : byte_table_spell(table, &byte, 1, spelling);
        merges->byte_id[b] = vocab_find(vocab, spelling, bytes);
    }
}
