#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
