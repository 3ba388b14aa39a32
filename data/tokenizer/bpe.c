/* bpe.c - merge the pair of lowest rank, the leftmost of equals,
 * until no pair has one.
 *
 * Symbols are a linked list and the pairs wait in a heap ordered by (rank,
 * position), so that a word of n bytes takes n log n. An entry of the heap is
 * stale when its rank is no longer that of the pair at its position; the text
 * of a pair only ever grows and a rank belongs to one pair, so a stale entry
 * cannot become valid again. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { HEAP_WAYS = 4, LEAST_SYMBOLS = 128 };

void bpe_fini(struct bpe *bpe)
{
    free(bpe->symbols);
    free(bpe->heap);
    memset(bpe, 0, sizeof *bpe);
}

static enum zd_status reserve(struct bpe *bpe, size_t symbols)
{
    if (symbols >= UINT32_MAX / 4)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0411",
                "a word of %zu bytes is longer than the tokenizer supports",
                symbols);
    if (symbols <= bpe->capacity)
        return ZD_OK;
    bpe_fini(bpe);
    if (symbols < LEAST_SYMBOLS)
        symbols = LEAST_SYMBOLS;
    bpe->symbols = zd_array(symbols, sizeof *bpe->symbols);
    /* one entry for each first pair, at most two for each merge */
    bpe->heap = zd_array(3 * symbols, sizeof *bpe->heap);
    bpe->capacity = symbols;
    return ZD_OK;
}

static void heap_push(struct bpe *bpe, uint64_t entry)
{
    size_t at = bpe->heap_count++;
    while (at > 0) {
        size_t parent = (at - 1) / HEAP_WAYS;
        if (bpe->heap[parent] <= entry)
            break;
        bpe->heap[at] = bpe->heap[parent];
        at = parent;
    }
    bpe->heap[at] = entry;
}

static uint64_t heap_pop(struct bpe *bpe)
{
    uint64_t top = bpe->heap[0];
    uint64_t last = bpe->heap[--bpe->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = at * HEAP_WAYS + 1, best = child;
        size_t end = child + HEAP_WAYS;
        if (child >= bpe->heap_count)
            break;
        if (end > bpe->heap_count)
            end = bpe->heap_count;
        for (size_t c = child + 1; c < end; c++)
            if (bpe->heap[c] < bpe->heap[best])
                best = c;
        if (bpe->heap[best] >= last)
            break;
        bpe->heap[at] = bpe->heap[best];
        at = best;
    }
    bpe->heap[at] = last;
    return top;
}

/* The pair that begins at `at` is new: find its rank, and queue it. */
static void pair_renew(
        struct bpe *bpe, const struct merges *merges, uint32_t at)
{
    struct symbol *left = &bpe->symbols[at];
    left->rank = MERGE_NONE;
    if (left->next != UINT32_MAX)
        left->rank = merges_rank(merges, left->id, bpe->symbols[left->next].id);
    if (left->rank != MERGE_NONE)
        heap_push(bpe, (uint64_t)left->rank << 32 | at);
}

static void merge_all(struct bpe *bpe, const struct merges *merges)
{
    struct symbol *symbols = bpe->symbols;
    while (bpe->heap_count > 0) {
        uint64_t entry = heap_pop(bpe);
        uint32_t at = (uint32_t)entry;
        struct symbol *left = &symbols[at];
        if (left->rank != (int32_t)(entry >> 32))
            continue; /* stale */
        struct symbol *gone = &symbols[left->next];
        left->id = merges->result[left->rank];
        left->next = gone->next;
        gone->rank = MERGE_NONE;
        if (left->next != UINT32_MAX)
            symbols[left->next].prev = at;
        pair_renew(bpe, merges, at);
        if (left->prev != UINT32_MAX)
            pair_renew(bpe, merges, left->prev);
    }
}

/* The symbol at `at`: a character, or a byte where those of a character that
 * the vocabulary lacks go on until *bytes_end. */
static int32_t symbol_at(
        const struct merges *merges, const unsigned char *word, size_t at,
        size_t *bytes_end, unsigned *step)
{
    *step = 1;
    if (merges->characters && at >= *bytes_end) {
        utf8_read(word + at, step);
        int32_t id = vocab_find(merges->characters, word + at, *step);
        if (id >= 0)
            return id;
        *bytes_end = at + *step;
        *step = 1;
    }
    return merges->byte_id[word[at]];
}

enum zd_status bpe_encode(
        struct bpe *bpe, const struct merges *merges, const unsigned char *word,
        size_t bytes, struct token_vector *out)
{
    uint32_t count = 0;
    unsigned step;
    size_t bytes_end = 0;
    ZD_TRY(reserve(bpe, bytes));
    for (size_t i = 0; i < bytes; i += step) {
        int32_t id = symbol_at(merges, word, i, &bytes_end, &step);
        if (id < 0)
            continue;
        /* before the first: UINT32_MAX */
        bpe->symbols[count] =
                (struct symbol){.id = id, .prev = count - 1, .next = count + 1};
        count++;
    }
    if (count == 0)
        return ZD_OK;
    bpe->symbols[count - 1].next = UINT32_MAX;
    bpe->heap_count = 0;
    for (uint32_t i = 0; i < count; i++)
        pair_renew(bpe, merges, i);
    merge_all(bpe, merges);
    for (uint32_t i = 0; i != UINT32_MAX; i = bpe->symbols[i].next)
        token_vector_push(out, bpe->symbols[i].id);
    return ZD_OK;
}
