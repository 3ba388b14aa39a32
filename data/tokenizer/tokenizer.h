/* tokenizer.h - BPE from tokenizer.json, byte-level or of characters with byte
 * fallback (as converted from SentencePiece), to the id the same as Hugging
 * Face tokenizers (measured against 0.23, see docs/tokenizer.md), and a
 * built-in byte tokenizer (id = byte, 256 = end of text).
 *
 * Threads: a tokenizer is immutable after creation; an encoder (scratch,
 * caches) belongs to one thread. */
#pragma once

#include "base/file/hash.h"
#include "base/file/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* `path`: a tokenizer.json or the directory that holds it (then
 * tokenizer_config.json beside it names eos and bos). ZD_ERR_NO_INPUT when
 * there is none; ZD_ERR_DATA for a broken or unsupported one, naming what. */
enum zd_status tokenizer_open(const char *path, struct tokenizer **out);
enum zd_status tokenizer_open_bytes(struct tokenizer **out);
void tokenizer_close(struct tokenizer *tokenizer);

struct token_vector { /* grows; ids owned, free with token_vector_fini */
    int32_t *ids;
    size_t count, capacity;
};
struct tokenizer_facts {
    int vocab_size; /* one more than the largest id */
    int eos; /* end of text: tokenizer_config.json's eos_token; -1: none */
    char digest[HASH_HEX]; /* of everything that decides ids; for caches and
                              resume checks */
    char describe[160];
    /* What the post-processor puts before a text (BOS), and after it. */
    struct token_vector prefix, suffix;
    /* What the files beside tokenizer.json say of conversations: the template
     * of chat_template.jinja, else of tokenizer_config.json; of several the one
     * named "default", and "tool_use" for conversations with tools. NULL where
     * they say nothing. */
    struct tokenizer_chat {
        const char *source, *with_tools, *path; /* path: of the file */
        json_t *tokens; /* special tokens by name: {"bos_token": "<s>"} */
    } chat;
};
const struct tokenizer_facts *tokenizer_facts(
        const struct tokenizer *tokenizer);
/* Counts the places in a text that become special tokens. */
int64_t tokenizer_count_specials(
        const struct tokenizer *tokenizer, const char *text, size_t bytes);
int tokenizer_token_id(
        const struct tokenizer *tokenizer,
        const char *token); /* -1: no such token */
void token_vector_push(struct token_vector *vector, int32_t id);
void token_vector_append(
        struct token_vector *vector, const int32_t *ids, size_t count);
void token_vector_fini(struct token_vector *vector);

struct encoder;
struct encoder *encoder_create(const struct tokenizer *tokenizer);
void encoder_destroy(struct encoder *encoder);
/* Append the ids of `text` (UTF-8), in which added tokens are recognized.
 * `continues`: the text continues another, so no "▁" is put in front of it.
 * Invalid UTF-8 is ZD_ERR_DATA with its byte offset. */
enum zd_status encoder_encode(
        struct encoder *encoder, const char *text, size_t bytes, bool continues,
        struct token_vector *ids);
/* A place in a text, and of the tokens that are appended the index in `ids` of
 * the first that ends after it, or, for the end of a range, of the first that
 * does not begin before it: the tokens between two borders are those that
 * overlap the range, as transformers' return_assistant_tokens_mask takes them.
 * The spaces that begin or end a token do not count where the post-processor
 * has trim_offsets. */
struct encode_border {
    size_t at;
    bool is_end;
    size_t token;
};
/* As encoder_encode; places `borders`, which are in the order of the text. */
enum zd_status encoder_encode_borders(
        struct encoder *encoder, const char *text, size_t bytes,
        struct token_vector *ids, struct encode_border *borders, size_t count);
/* The last known place where `text` may be cut: whatever follows, the ids of
 * both parts are together those of the whole, if the second is encoded with
 * `continues`. 0: no such place is known. The text need not be valid UTF-8. */
size_t tokenizer_cut(
        const struct tokenizer *tokenizer, const char *text, size_t bytes);
/* The exact bytes of a token, borrowed. ZD_ERR_DATA if no token has this id. */
enum zd_status tokenizer_token_bytes(
        const struct tokenizer *tokenizer, int32_t id, const char **bytes_out,
        size_t *count_out);

/* First invalid byte of `text` as UTF-8, or `bytes` when it is valid. */
size_t utf8_valid_prefix(const char *text, size_t bytes);
