/* encode.c - from text to ids, and the cache of an encoder.
 *
 * The cache maps short pre-tokens to their ids. It has one place for each hash;
 * a newcomer takes it. Text repeats its words so much that more is not worth
 * the memory traffic. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>

/* ---- byte pairs: merge the pair of lowest rank, the leftmost of equals, until
 * no pair has one.
 *
 * Symbols are a linked list and the pairs wait in a heap ordered by (rank,
 * position), so that a word of n bytes takes n log n. An entry of the heap is
 * stale when its rank is no longer that of the pair at its position; the text
 * of a pair only ever grows and a rank belongs to one pair, so a stale entry
 * cannot become valid again. */

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
        return ZD_BAD(
                "E0411",
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

/* ---- the encoder ---- */

enum { CACHE_BITS = 15, CACHED_BYTES = 30, CACHED_IDS = 8 };

struct cache_entry { /* one cache line */
    uint8_t bytes;   /* 0: free */
    uint8_t ids;
    unsigned char word[CACHED_BYTES];
    int32_t id[CACHED_IDS];
};

struct encoder {
    const struct tokenizer *tokenizer;
    struct token_vector *ids; /* of the text at hand */
    bool continues;           /* it goes on from another */
    struct cache_entry *cache;
    struct bpe bpe;
    struct byte_buffer normal;   /* a normalized stretch */
    struct byte_buffer prefixed; /* a stretch with a space in front */
    unsigned char *spelling;     /* a pre-token as the vocabulary spells it */
    pcre2_match_data *match;     /* when pre-tokens come from a pattern */
    pcre2_match_context *context;
    pcre2_jit_stack *stack;

    /* Borders that are not placed yet, and where the first of them lies among
     * what is split: the text, or a normalized stretch of it. SIZE_MAX: not
     * there. */
    struct encode_border *border, *border_end;
    size_t next;
    const unsigned char *origin; /* what is split, */
    size_t origin_at;            /* which begins here in the text */
    const unsigned char *raw;    /* it before it was normalized; NULL: as is */
    size_t raw_bytes, passed_raw, passed; /* of it, up to the last border */
    struct byte_buffer measured;
};

static void create_matcher(struct encoder *e)
{
    enum { STACK_FIRST = 32 << 10, STACK_MOST = 8 << 20 };
    const struct splitter *splitter = &e->tokenizer->splitter;
    bool has_pattern = false;
    for (int i = 0; i < splitter->count; i++)
        has_pattern |= splitter->stages[i].kind == SPLIT_PATTERN;
    if (!has_pattern)
        return;
    e->match = zd_must(pcre2_match_data_create(1, NULL));
    e->context = zd_must(pcre2_match_context_create(NULL));
    e->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (e->stack) /* none: no JIT in this build of PCRE2 */
        pcre2_jit_stack_assign(e->context, NULL, e->stack);
}

struct encoder *encoder_create(const struct tokenizer *t)
{
    struct encoder *e = zd_array(1, sizeof *e);
    size_t cache_bytes = sizeof *e->cache << CACHE_BITS;
    e->tokenizer = t;
    if (t->is_bytes)
        return e;
    e->cache = zd_must(aligned_alloc(sizeof *e->cache, cache_bytes));
    memset(e->cache, 0, cache_bytes);
    e->spelling = zd_array((size_t)t->vocab.longest + 1, 1);
    create_matcher(e);
    return e;
}

void encoder_destroy(struct encoder *e)
{
    if (!e)
        return;
    free(e->cache);
    free(e->spelling);
    bpe_fini(&e->bpe);
    byte_buffer_fini(&e->normal);
    byte_buffer_fini(&e->prefixed);
    byte_buffer_fini(&e->measured);
    pcre2_match_data_free(e->match);
    pcre2_match_context_free(e->context);
    pcre2_jit_stack_free(e->stack);
    free(e);
}

/* ---- borders ---- */

/* Bytes of a part of what is split once it is normalized. */
static size_t normal_bytes(
        struct encoder *e, const unsigned char *text, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    e->measured.count = 0;
    if (t->is_metaspace)
        meta_replace(text, bytes, false, &e->measured);
    else if (!tokenizer_normalize(t, text, bytes, false, &e->measured))
        return bytes;
    return e->measured.count;
}

/* Find `next`. Each part of a stretch is normalized once more for it. */
static void aim(struct encoder *e)
{
    bool is_last = e->border == e->border_end;
    size_t at = is_last ? SIZE_MAX : e->border->at;
    if (at != SIZE_MAX && e->raw && at > e->origin_at) {
        size_t from = e->passed_raw, to = at - e->origin_at;
        if (to >= e->raw_bytes) {
            at = SIZE_MAX;
        } else {
            e->passed += normal_bytes(e, e->raw + from, to - from);
            e->passed_raw = to;
            at = e->origin_at + e->passed;
        }
    }
    e->next = at;
}

/* From here on `text` is split; `raw` is NULL where it is the text itself,
 * `prefix` the bytes in front of it. */
static void set_origin(
        struct encoder *e, const unsigned char *text, size_t at,
        const unsigned char *raw, size_t raw_bytes, size_t prefix)
{
    e->origin = text;
    e->origin_at = at;
    e->raw = raw;
    e->raw_bytes = raw_bytes;
    e->passed_raw = 0;
    e->passed = prefix;
    aim(e);
}

static size_t place_of(const struct encoder *e, const unsigned char *text)
{
    return e->origin_at + (size_t)(text - e->origin);
}

/* The place of a token without its spaces. */
static void trim_place(
        const struct vocab *vocab, int32_t id, size_t *begin, size_t *end)
{
    const struct vocab_token *token = &vocab->tokens[id];
    const unsigned char *text = vocab->text.data + token->decoded;
    size_t bytes = token->decoded_bytes, before = 0, after = 0;
    while (before < bytes && text[before] == ' ')
        before++;
    while (after < bytes && text[bytes - 1 - after] == ' ')
        after++;
    *begin = *begin + before < *end ? *begin + before : *end;
    *end = *end - *begin > after ? *end - after : *begin;
}

/* Bytes of the normalized text that a token was made of. */
static size_t source_bytes(const struct tokenizer *t, int32_t id)
{
    const struct vocab_token *token = &t->vocab.tokens[id];
    const unsigned char *text = t->vocab.text.data + token->decoded;
    bool is_byte =
            token->decoded_bytes == 1 && t->merges.byte_id[text[0]] == id;
    return t->table.is_fallback && !is_byte ? token->spelling_bytes
                                            : token->decoded_bytes;
}

/* The borders within [begin, end), whose tokens are ids[first..]. What the last
 * one does not spell belongs to it, as spaces that an added token takes. */
static void place_borders(
        struct encoder *e, size_t begin, size_t end, size_t first)
{
    const struct tokenizer *t = e->tokenizer;
    while (e->next < end) {
        struct encode_border *border = e->border++;
        size_t i = first, from = begin;
        for (size_t to; i < e->ids->count; i++, from = to) {
            int32_t id = e->ids->ids[i];
            to = i + 1 == e->ids->count ? end : from + source_bytes(t, id);
            size_t token_begin = from, token_end = to;
            if (t->trim_offsets)
                trim_place(&t->vocab, id, &token_begin, &token_end);
            if (border->is_end ? token_begin >= e->next : token_end > e->next)
                break;
        }
        border->token = i;
        aim(e);
    }
}

/* ---- one pre-token ---- */

/* The id of a pre-token that is a token as a whole, or -1. */
static int whole_token(
        struct encoder *e, const unsigned char *word, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    /* a byte is spelled with 1 or 2 */
    if (bytes > (size_t)t->vocab.longest)
        return -1;
    size_t spelled = 0;
    if (t->table.is_fallback)
        return vocab_find(&t->vocab, word, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (spelled + 2 > (size_t)t->vocab.longest + 1)
            return -1;
        spelled += utf8_write(e->spelling + spelled, t->table.char_of[word[i]]);
    }
    return vocab_find(&t->vocab, e->spelling, spelled);
}

static enum zd_status encode_uncached(
        struct encoder *e, const unsigned char *word, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    if (t->ignore_merges) {
        int id = whole_token(e, word, bytes);
        if (id >= 0) {
            token_vector_push(e->ids, id);
            return ZD_OK;
        }
    }
    return bpe_encode(&e->bpe, &t->merges, word, bytes, e->ids);
}

static enum zd_status encode_word(
        struct encoder *e, const unsigned char *word, size_t bytes)
{
    if (bytes > CACHED_BYTES)
        return encode_uncached(e, word, bytes);
    size_t place = text_hash(word, bytes) >> (64 - CACHE_BITS);
    struct cache_entry *entry = &e->cache[place];
    if (entry->bytes == bytes && memcmp(entry->word, word, bytes) == 0) {
        token_vector_append(e->ids, entry->id, entry->ids);
        return ZD_OK;
    }
    size_t before = e->ids->count;
    ZD_TRY(encode_uncached(e, word, bytes));
    size_t made = e->ids->count - before;
    if (made > CACHED_IDS)
        return ZD_OK;
    entry->bytes = (uint8_t)bytes;
    entry->ids = (uint8_t)made;
    memcpy(entry->word, word, bytes);
    if (made > 0)
        memcpy(entry->id, e->ids->ids + before, made * sizeof *entry->id);
    return ZD_OK;
}

/* ---- stretches ---- */

/* A stretch in which all is done but to split it. */
static enum zd_status encode_words(
        struct encoder *e, const unsigned char *text, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    size_t at = place_of(e, text);
    bool is_prefixed = t->add_prefix_space && text[0] != ' ';
    if (is_prefixed) {
        e->prefixed.count = 0;
        byte_buffer_append(&e->prefixed, " ", 1);
        byte_buffer_append(&e->prefixed, text, bytes);
        text = e->prefixed.data;
        bytes = e->prefixed.count;
    }
    struct split_scan scan = {
            .splitter = &t->splitter,
            .classes = t->classes,
            .text = text,
            .bytes = bytes,
            .match = e->match,
            .context = e->context,
    };
    while (scan.at < bytes) {
        size_t begin = scan.at, end, first = e->ids->count;
        ZD_TRY(split_scan_next(&scan, &end));
        ZD_TRY(encode_word(e, text + begin, end - begin));
        if (e->next < at + end - is_prefixed)
            place_borders(
                    e, at + begin - is_prefixed, at + end - is_prefixed, first);
    }
    return ZD_OK;
}

/* A stretch without added tokens, normalized. */
static enum zd_status encode_part(
        struct encoder *e, const unsigned char *text, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    if (!t->is_metaspace)
        return encode_words(e, text, bytes);
    size_t at = place_of(e, text);
    bool is_there =
            text[0] == ' ' ||
            (bytes >= META_BYTES && memcmp(text, META_SPACE, META_BYTES) == 0);
    bool prefixes = !is_there && (at > 0 || !e->continues) &&
                    (t->prefixes == PREFIX_UNLESS_THERE ||
                     (t->prefixes == PREFIX_FIRST && at == 0));
    const unsigned char *whole = e->origin;
    e->normal.count = 0;
    meta_replace(text, bytes, prefixes, &e->normal);
    set_origin(e, e->normal.data, at, text, bytes, prefixes ? META_BYTES : 0);
    enum zd_status status = encode_words(e, e->normal.data, e->normal.count);
    set_origin(e, whole, 0, NULL, 0, 0);
    return status;
}

typedef enum zd_status stretch_fn(
        struct encoder *e, const unsigned char *text, size_t bytes);

/* The added tokens of one scan, and what `encode` makes of the text between. */
static enum zd_status encode_between(
        struct encoder *e, const struct added_set *set,
        const unsigned char *text, size_t bytes, stretch_fn *encode)
{
    struct added_scan scan = {set, e->tokenizer->classes, text, bytes};
    struct added_piece piece;
    while (added_scan_next(&scan, &piece)) {
        if (!piece.token) {
            ZD_TRY(encode(e, text + piece.begin, piece.end - piece.begin));
            continue;
        }
        token_vector_push(e->ids, piece.token->id);
        size_t at = place_of(e, text);
        place_borders(e, at + piece.begin, at + piece.end, e->ids->count - 1);
    }
    return ZD_OK;
}

/* A stretch between added tokens of the first scan. */
static enum zd_status encode_raw(
        struct encoder *e, const unsigned char *text, size_t bytes)
{
    const struct tokenizer *t = e->tokenizer;
    size_t at = place_of(e, text);
    bool begins = at > 0 || !e->continues;
    e->normal.count = 0;
    if (!tokenizer_normalize(t, text, bytes, begins, &e->normal))
        return encode_between(
                e, &t->added_normalized, text, bytes, encode_part);
    const unsigned char *whole = e->origin;
    set_origin(
            e, e->normal.data, at, text, bytes,
            begins && t->prefixes == PREFIX_ALWAYS ? META_BYTES : 0);
    enum zd_status status = encode_between(
            e, &t->added_normalized, e->normal.data, e->normal.count,
            encode_part);
    set_origin(e, whole, 0, NULL, 0, 0);
    return status;
}

/* The encoder has its borders. */
static enum zd_status encode(
        struct encoder *e, const unsigned char *text, size_t bytes,
        bool continues)
{
    const struct tokenizer *t = e->tokenizer;
    size_t valid = utf8_valid_prefix((const char *)text, bytes);
    size_t first = e->ids->count;
    if (valid < bytes)
        return ZD_BAD("E0413", "invalid UTF-8 at byte offset %zu", valid);
    for (size_t i = 0; t->is_bytes && i < bytes; i++)
        token_vector_push(e->ids, text[i]);
    e->continues = continues;
    set_origin(e, text, 0, NULL, 0, 0);
    if (!t->is_bytes)
        ZD_TRY(encode_between(e, &t->added_raw, text, bytes, encode_raw));
    for (; e->border < e->border_end; e->border++)
        e->border->token = t->is_bytes ? first + e->border->at : e->ids->count;
    return ZD_OK;
}

enum zd_status encoder_encode(
        struct encoder *e, const char *text, size_t bytes, bool continues,
        struct token_vector *ids)
{
    e->border = e->border_end = NULL;
    e->ids = ids;
    return encode(e, (const unsigned char *)text, bytes, continues);
}

enum zd_status encoder_encode_borders(
        struct encoder *e, const char *text, size_t bytes,
        struct token_vector *ids, struct encode_border *borders, size_t count)
{
    e->border = borders;
    e->border_end = count > 0 ? borders + count : borders;
    e->ids = ids;
    return encode(e, (const unsigned char *)text, bytes, false);
}
