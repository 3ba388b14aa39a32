/* encode.c - from text to ids, and the cache of an encoder.
 *
 * The cache maps short pre-tokens to their ids. It has one place for each hash;
 * a newcomer takes it. Text repeats its words so much that more is not worth
 * the memory traffic. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_BITS = 15, CACHED_BYTES = 30, CACHED_IDS = 8 };

struct cache_entry { /* one cache line */
    uint8_t bytes;   /* 0: free */
    uint8_t ids;
    unsigned char word[CACHED_BYTES];
    int32_t id[CACHED_IDS];
};

struct encoder {
    const struct tokenizer *tokenizer;
    bool takes_added; /* tokens, in the text at hand */
    struct cache_entry *cache;
    struct bpe bpe;
    struct byte_buffer normal;   /* a normalized stretch */
    struct byte_buffer prefixed; /* a stretch with a space in front */
    unsigned char *spelling;     /* a pre-token as the vocabulary spells it */
    pcre2_match_data *match;     /* when pre-tokens come from a pattern */
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static void create_matcher(struct encoder *encoder)
{
    enum { STACK_FIRST = 32 << 10, STACK_MOST = 8 << 20 };
    const struct splitter *splitter = &encoder->tokenizer->splitter;
    if (splitter->kind != SPLIT_PATTERN)
        return;
    encoder->match =
            zd_must(pcre2_match_data_create_from_pattern(splitter->code, NULL));
    encoder->context = zd_must(pcre2_match_context_create(NULL));
    encoder->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (encoder->stack) /* none: no JIT in this build of PCRE2 */
        pcre2_jit_stack_assign(encoder->context, NULL, encoder->stack);
}

struct encoder *encoder_create(const struct tokenizer *tokenizer)
{
    struct encoder *encoder = zd_array(1, sizeof *encoder);
    size_t cache_bytes = sizeof *encoder->cache << CACHE_BITS;
    encoder->tokenizer = tokenizer;
    if (tokenizer->is_bytes)
        return encoder;
    encoder->cache =
            zd_must(aligned_alloc(sizeof *encoder->cache, cache_bytes));
    memset(encoder->cache, 0, cache_bytes);
    encoder->spelling = zd_array((size_t)tokenizer->vocab.longest + 1, 1);
    create_matcher(encoder);
    return encoder;
}

void encoder_destroy(struct encoder *encoder)
{
    if (!encoder)
        return;
    free(encoder->cache);
    free(encoder->spelling);
    bpe_fini(&encoder->bpe);
    byte_buffer_fini(&encoder->normal);
    byte_buffer_fini(&encoder->prefixed);
    pcre2_match_data_free(encoder->match);
    pcre2_match_context_free(encoder->context);
    pcre2_jit_stack_free(encoder->stack);
    free(encoder);
}

/* ---- one pre-token ---- */

/* The id of a pre-token that is a token as a whole, or -1. */
static int whole_token(
        struct encoder *encoder, const unsigned char *word, size_t bytes)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    /* a byte is spelled with 1 or 2 */
    if (bytes > (size_t)tokenizer->vocab.longest)
        return -1;
    size_t spelled = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (spelled + 2 > (size_t)tokenizer->vocab.longest + 1)
            return -1;
        spelled += utf8_write(
                encoder->spelling + spelled, tokenizer->table.char_of[word[i]]);
    }
    return vocab_find(&tokenizer->vocab, encoder->spelling, spelled);
}

static enum zd_status encode_uncached(
        struct encoder *encoder, const unsigned char *word, size_t bytes,
        struct token_vector *ids)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->ignore_merges) {
        int id = whole_token(encoder, word, bytes);
        if (id >= 0) {
            token_vector_push(ids, id);
            return ZD_OK;
        }
    }
    return bpe_encode(&encoder->bpe, &tokenizer->merges, word, bytes, ids);
}

static enum zd_status encode_word(
        struct encoder *encoder, const unsigned char *word, size_t bytes,
        struct token_vector *ids)
{
    if (bytes > CACHED_BYTES)
        return encode_uncached(encoder, word, bytes, ids);
    size_t place = text_hash(word, bytes) >> (64 - CACHE_BITS);
    struct cache_entry *entry = &encoder->cache[place];
    if (entry->bytes == bytes && memcmp(entry->word, word, bytes) == 0) {
        token_vector_append(ids, entry->id, entry->ids);
        return ZD_OK;
    }
    size_t before = ids->count;
    ZD_TRY(encode_uncached(encoder, word, bytes, ids));
    size_t made = ids->count - before;
    if (made > CACHED_IDS)
        return ZD_OK;
    entry->bytes = (uint8_t)bytes;
    entry->ids = (uint8_t)made;
    memcpy(entry->word, word, bytes);
    if (made > 0)
        memcpy(entry->id, ids->ids + before, made * sizeof *entry->id);
    return ZD_OK;
}

/* ---- stretches ---- */

/* A stretch without added tokens, normalized. */
static enum zd_status encode_stretch(
        struct encoder *encoder, const unsigned char *text, size_t bytes,
        struct token_vector *ids)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->add_prefix_space && text[0] != ' ') {
        encoder->prefixed.count = 0;
        byte_buffer_append(&encoder->prefixed, " ", 1);
        byte_buffer_append(&encoder->prefixed, text, bytes);
        text = encoder->prefixed.data;
        bytes = encoder->prefixed.count;
    }
    struct split_scan scan = {
            .splitter = &tokenizer->splitter,
            .classes = tokenizer->classes,
            .text = text,
            .bytes = bytes,
            .match = encoder->match,
            .context = encoder->context,
    };
    while (scan.at < bytes) {
        size_t begin = scan.at, end;
        ZD_TRY(split_scan_next(&scan, &end));
        ZD_TRY(encode_word(encoder, text + begin, end - begin, ids));
    }
    return ZD_OK;
}

/* The added tokens of one scan, and what `encode` makes of the text between. */
static enum zd_status encode_between(
        struct encoder *encoder, const struct added_set *set,
        const unsigned char *text, size_t bytes, struct token_vector *ids,
        enum zd_status (*encode)(
                struct encoder *encoder, const unsigned char *text,
                size_t bytes, struct token_vector *ids))
{
    static const struct added_set none;
    struct added_scan scan;
    struct added_piece piece;
    added_scan_init(
            &scan, encoder->takes_added ? set : &none,
            encoder->tokenizer->classes, text, bytes);
    while (added_scan_next(&scan, &piece)) {
        if (piece.token)
            token_vector_push(ids, piece.token->id);
        else
            ZD_TRY(encode(
                    encoder, text + piece.begin, piece.end - piece.begin, ids));
    }
    return ZD_OK;
}

/* A stretch between added tokens of the first scan. */
static enum zd_status encode_raw_stretch(
        struct encoder *encoder, const unsigned char *text, size_t bytes,
        struct token_vector *ids)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    encoder->normal.count = 0;
    if (tokenizer->nfc &&
        nfc_normalize(tokenizer->classes, text, bytes, &encoder->normal)) {
        text = encoder->normal.data;
        bytes = encoder->normal.count;
    }
    return encode_between(
            encoder, &tokenizer->added_normalized, text, bytes, ids,
            encode_stretch);
}

enum zd_status encoder_encode(
        struct encoder *encoder, const char *chars, size_t bytes,
        unsigned flags, struct token_vector *ids, size_t *bad_offset_out)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    const unsigned char *text = (const unsigned char *)chars;
    size_t valid = utf8_valid_prefix(chars, bytes);
    if (valid < bytes) {
        if (bad_offset_out)
            *bad_offset_out = valid;
        return ZD_FAIL(
                ZD_ERR_DATA, "E0413", "invalid UTF-8 at byte offset %zu",
                valid);
    }
    for (size_t i = 0; tokenizer->is_bytes && i < bytes; i++)
        token_vector_push(ids, text[i]);
    if (tokenizer->is_bytes)
        return ZD_OK;
    encoder->takes_added = flags & ENCODE_ADDED_TOKENS;
    return encode_between(
            encoder, &tokenizer->added_raw, text, bytes, ids,
            encode_raw_stretch);
}
