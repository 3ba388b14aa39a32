/* tokenizer_internal.h - the parts of a tokenizer, private to this folder
 * and their tests.
 *
 *   text -> added tokens, first scan (raw text)
 *        -> normalize each stretch between (NFC, or spaces to "▁")
 *        -> added tokens, second scan (normalized text)
 *        -> Metaspace: spaces of each stretch between to "▁"
 *        -> split it into pre-tokens
 *        -> ids of each pre-token: cache, whole token, or merges
 *
 * An open tokenizer is immutable; an encoder holds the scratch of one
 * thread. */
#pragma once

#include "data/tokenizer/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum {
    TOKENIZER_FILE_MAX = 64 << 20, /* bytes */
    TOKENIZER_IDS_MAX = 1 << 21,   /* ids are below: 21 bits */
    TOKENIZER_MERGES_MAX = 1 << 22 /* fewer: ranks have 22 bits */
};

/* ---- growing bytes ---- */

struct byte_buffer {
    unsigned char *data;
    size_t count, capacity;
};
void byte_buffer_append(
        struct byte_buffer *buffer, const void *data, size_t bytes);
void byte_buffer_fini(struct byte_buffer *buffer);

/* Texts are short: 8 bytes per round; the last 8 may overlap the round before,
 * which avoids a loop over bytes. Upper bits are the best mixed. */
static inline uint64_t text_hash(const void *text, size_t bytes)
{
    const unsigned char *p = text;
    uint64_t hash = bytes * 0x9e3779b97f4a7c15u, part = 0;
    for (size_t i = 0; bytes < sizeof part && i < bytes; i++)
        part = part << 8 | p[i];
    for (size_t i = 0; i + sizeof part < bytes; i += sizeof part) {
        memcpy(&part, p + i, sizeof part);
        hash = (hash ^ part) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    if (bytes >= sizeof part)
        memcpy(&part, p + bytes - sizeof part, sizeof part);
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    return (hash ^ hash >> 29) * 0x9e3779b97f4a7c15u;
}

/* ---- the byte table: every byte as a printable character ---- */

enum { BYTE_CHARS = 256 + 68 }; /* characters U+0000..U+0143 are looked up */

struct byte_table {
    uint16_t char_of[256];
    int16_t byte_of[BYTE_CHARS]; /* -1: stands for no byte */
    bool is_fallback; /* instead, tokens are spelled in their characters, with
                         "▁" for a space and "<0xNN>" for a byte */
};

#define META_SPACE "\xe2\x96\x81" /* U+2581, which stands for a space */
enum { META_BYTES = sizeof META_SPACE - 1 };
void byte_table_init(struct byte_table *table);
/* ---- tokens: id <-> spelling, id -> bytes ---- */

struct vocab_token {
    uint32_t spelling, spelling_bytes; /* in `text` */
    uint32_t decoded, decoded_bytes;
    bool present; /* false: a gap between ids */
};
struct vocab {
    struct vocab_token *tokens; /* by id */
    int ids;                    /* one more than the largest id */
    int capacity;               /* of `tokens` */
    int count;                  /* tokens there are */
    int longest;                /* bytes of the longest spelling */
    struct byte_buffer text;
    uint32_t *slots; /* id + 1, 0 free; open addressing */
    uint32_t slot_mask;
};
/* Room for ids below `capacity`. */
void vocab_init(struct vocab *vocab, int capacity);
void vocab_fini(struct vocab *vocab);
/* ZD_ERR_DATA when the id is taken; the spelling must be new. */
enum zd_status vocab_add(
        struct vocab *vocab, const struct byte_table *table,
        const char *spelling, size_t bytes, int id);
/* Makes an id decode as another spelling would. */
void vocab_set_decoded(
        struct vocab *vocab, const struct byte_table *table,
        const void *spelling, size_t bytes, int id);
int vocab_find(
        const struct vocab *vocab, const void *spelling, size_t bytes); /* -1 */

/* ---- merges: (left id, right id) -> rank, rank -> id ---- */

enum { MERGE_NONE = INT32_MAX };

struct merges {
    uint64_t *slots; /* left:21 right:21 rank:22; all ones: free */
    int shift;       /* of the hash, to a slot */
    uint64_t mask;
    int32_t *result;                /* (count) id that rank makes */
    int32_t byte_id[256];           /* -1: the vocabulary lacks the byte */
    const struct vocab *characters; /* symbols are its characters, and bytes of
                                       those it lacks; NULL: all are bytes */
    int count;
};
void merges_fini(struct merges *merges);

/* The slot of a pair, free where the pair has none. */
static inline uint64_t *merges_slot(
        const struct merges *merges, int left, int right)
{
    uint64_t key = (uint64_t)left << 21 | (uint64_t)right;
    uint64_t at = key * 0x9e3779b97f4a7c15u >> merges->shift;
    while (merges->slots[at] != UINT64_MAX && merges->slots[at] >> 22 != key)
        at = (at + 1) & merges->mask;
    return &merges->slots[at];
}
static inline int merges_rank(const struct merges *merges, int left, int right)
{
    uint64_t slot = *merges_slot(merges, left, right);
    return slot == UINT64_MAX ? MERGE_NONE
                              : (int)(slot & (TOKENIZER_MERGES_MAX - 1));
}

/* ---- added tokens ---- */

struct added_token {
    int id;
    unsigned char *content; /* owned; normalized when it is matched so */
    size_t bytes;
    bool single_word, lstrip, rstrip;
    bool normalized, special;
};
/* The tokens that one scan looks for. */
struct added_set {
    struct added_token *tokens; /* sorted by content */
    int count;
    size_t capacity;
    int first[257]; /* tokens whose content begins with byte b: first[b].. */
};
void added_set_finish(struct added_set *set); /* sort; before the first scan */
void added_set_fini(struct added_set *set);

struct added_scan { /* begins with its first four fields */
    const struct added_set *set;
    const uint8_t *classes;
    const unsigned char *text;
    size_t bytes;
    size_t at;    /* where the search goes on */
    size_t begin; /* of the text not handed out yet */
    const struct added_token *pending;
    size_t pending_end;
};
struct added_piece {
    const struct added_token *token; /* NULL: a stretch of text */
    size_t begin, end;
};
bool added_scan_next(struct added_scan *scan, struct added_piece *piece_out);

/* ---- NFC ---- */

/* Appends the NFC of `text` to `out`; false: the text certainly is NFC already,
 * nothing is appended. */
bool nfc_normalize(
        const uint8_t *classes, const unsigned char *text, size_t bytes,
        struct byte_buffer *out);

/* ---- pre-tokens ---- */

enum split_kind {
    SPLIT_DIGITS,     /* the pre_tokenizer Digits: runs of digits, */
    SPLIT_EACH_DIGIT, /* or single ones, and what is between */
    SPLIT_META,       /* before each "▁" but after bytes of `joins` */
    SPLIT_GPT2,
    SPLIT_LLAMA3,
    SPLIT_QWEN2,
    SPLIT_TEKKEN, /* Mistral's */
    SPLIT_O200K,  /* OpenAI's, also Phi-4-mini's */
    SPLIT_PATTERN
};
extern const char *const split_patterns[SPLIT_PATTERN]; /* NULL: has none */

enum { SPLIT_STAGES_MAX = 8 };
struct splitter {
    struct split_stage {
        enum split_kind kind;
        pcre2_code *code;       /* SPLIT_PATTERN */
    } stages[SPLIT_STAGES_MAX]; /* each cuts what the one before made */
    int count;                  /* 0: text stays whole */
    bool joins[256]; /* SPLIT_META: a merge may join "▁" to this byte */
};
/* SPLIT_PATTERN: not a known pattern. */
enum split_kind split_kind_of(const char *pattern);
/* Adds a stage; there must be room. */
struct split_stage *splitter_push(
        struct splitter *splitter, enum split_kind kind);
/* Adds a stage for a pattern. Known patterns get their own scanner; `plain`
 * forces PCRE2, with the same result. */
enum zd_status splitter_add(
        struct splitter *splitter, const char *pattern, bool plain);
void splitter_fini(struct splitter *splitter);

struct split_scan { /* over one stretch */
    const struct splitter *splitter;
    const uint8_t *classes;
    const unsigned char *text;
    size_t bytes, at;
    pcre2_match_data *match; /* SPLIT_PATTERN */
    pcre2_match_context *context;
    struct split_piece {
        size_t end;                    /* of the piece that is cut further */
        size_t match_begin, match_end; /* found and not handed out */
    } pieces[SPLIT_STAGES_MAX];        /* by stage */
};
/* The end of the pre-token that begins at scan->at, which moves there. */
enum zd_status split_scan_next(struct split_scan *scan, size_t *end_out);

/* ---- byte pairs ---- */

struct bpe { /* scratch for a word */
    struct symbol {
        int32_t id, rank; /* rank: of the pair that begins here */
        uint32_t prev, next;
    } * symbols;
    uint64_t *heap;
    size_t capacity, heap_count;
};
void bpe_fini(struct bpe *bpe);
/* Append the ids of one pre-token. */
enum zd_status bpe_encode(
        struct bpe *bpe, const struct merges *merges, const unsigned char *word,
        size_t bytes, struct token_vector *ids);

/* ---- the whole ---- */

enum prefix { /* in front of a stretch */
              PREFIX_NONE,
              PREFIX_ALWAYS,       /* the normalizer Prepend */
              PREFIX_UNLESS_THERE, /* Metaspace, prepend_scheme "always" */
              PREFIX_FIRST /* "first": the stretch that begins the text */
};

struct tokenizer {
    bool is_bytes; /* the built-in byte tokenizer: none of the parts below */
    struct tokenizer_facts facts;
    json_t *texts; /* of facts.chat; owned */

    uint8_t *classes;
    struct byte_table table;
    struct vocab vocab;
    int model_tokens; /* tokens of `vocab` without the added ones */
    struct merges merges;
    struct added_set added_raw, added_normalized;
    struct splitter splitter;
    bool nfc, add_prefix_space, ignore_merges, trim_offsets;

    /* of characters, with byte fallback; table.is_fallback tells */
    enum prefix prefixes;
    bool is_metaspace; /* spaces become "▁" after the second scan */
};

/* Appends the normalized part of a stretch to `out`; false: the normalizer
 * leaves it unchanged, nothing is appended. `begins`: the part begins the
 * stretch, so that Prepend applies. */
bool tokenizer_normalize(
        const struct tokenizer *tokenizer, const unsigned char *text,
        size_t bytes, bool begins, struct byte_buffer *out);
/* The same with spaces as "▁", and one in front if `prefixes`. */
void meta_replace(
        const unsigned char *text, size_t bytes, bool prefixes,
        struct byte_buffer *out);

static inline bool json_is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

/* The parts of a tokenizer.json, in the order they are to be loaded. */
/* normalizer, pre_tokenizer, decoder */
enum zd_status tokenizer_load_pipeline(
        struct tokenizer *tokenizer, const json_t *root);
enum zd_status tokenizer_load_model(
        struct tokenizer *tokenizer, const json_t *root);
enum zd_status tokenizer_load_added(
        struct tokenizer *tokenizer, const json_t *root);
/* post_processor */
enum zd_status tokenizer_load_around(
        struct tokenizer *tokenizer, const json_t *root);
