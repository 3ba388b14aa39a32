/* tokenize.h - text files to words, in units that threads can share.
 *
 * A word is a token as the cache keeps it:
 *
 *   bit 31      the loss counts this token when it is a target
 *   bit 30      first token of a document (the loss never counts it)
 *   bits 0..29  id
 *
 * A unit is some whole lines of a JSONL file, or a part of a text file that
 * ends where the tokenizer says it may be cut (tokenizer_cut). Units are read
 * in order by one thread, tokenized by any, and their words taken in order
 * again, so the result does not depend on the number of threads. */
#pragma once

#include "data/chat.h"
#include "data/source.h"

#include <pthread.h>
#include <stdlib.h>

#define WORD_TRAIN 0x80000000u
#define WORD_FIRST 0x40000000u
#define WORD_ID    0x3fffffffu

/* Text of a unit, unless a record is longer. Changing it needs a new
 * CACHE_VERSION. */
enum { UNIT_BYTES = 256 << 10 };
/* The most bytes of a record, or of a text that cannot be cut, if tokenized
 * during training: dataset_growth_bytes counts one at a time. */
enum { GROWTH_RECORD_BYTES = 4 << 20 };

struct unit {
    const struct data_file *file;
    uint64_t offset;    /* of `text` in the text of the file */
    int64_t first_line; /* from 1; of an array, or a table, the first row */
    uint64_t consumed;  /* bytes of the file read for it and units before */
    bool begins, ends;  /* the document, which is the file; not of lines */
    char *text;         /* owned by the unit's holder */
    size_t bytes, capacity;
};

static inline void unit_fini(struct unit *unit)
{
    free(unit->text);
    *unit = (struct unit){.file = NULL};
}

/* Reads the units of a list of files one after the other; `file` begins as -1.
 */
struct unit_reader {
    const struct file_list *list;
    const struct tokenizer *tokenizer;
    size_t most; /* bytes of a record, or of a text that cannot be cut */
    int file;    /* index of the open file */
    struct data_stream *stream; /* NULL: none is open */
    bool has_ended;             /* the stream: `rest` is all that is left */
    char *rest;                 /* text after the unit before */
    size_t rest_bytes, rest_capacity;
    uint64_t offset; /* of `rest` in the file's text */
    int64_t line;
    bool has_unit; /* the file has given one */
};
void unit_reader_fini(struct unit_reader *reader);
/* Reads the next unit into `unit`, reusing its text. *more_out false: no more
 * units. */
enum zd_status unit_read(
        struct unit_reader *reader, struct unit *unit, bool *more_out);

int64_t count_newlines(const char *text, size_t bytes);

/* What one thread needs. */
struct tokenize_worker {
    const struct recipe *recipe;
    struct encoder *encoder;
    struct chat_renderer renderer;
    struct unit unit;              /* at hand, whose text it owns, */
    int64_t line;                  /* in it, */
    struct document document;      /* of the line, */
    struct token_vector words;     /* of the unit: uint32_t kept in ids */
    struct row_notes notes;        /* of the units so far */
    struct encode_border *borders; /* of its ranges */
    size_t border_capacity;
};
void tokenize_worker_init(
        struct tokenize_worker *worker, const struct recipe *recipe);
void tokenize_worker_fini(struct tokenize_worker *worker);
/* Append the words of worker->unit. Errors name file, line and, for bytes that
 * are not UTF-8, the byte offset. */
enum zd_status tokenize_unit(struct tokenize_worker *worker);

/* The ids of a user's message, up to where the assistant begins to answer, by
 * the template of `choice`; *end_out: the token that ends the answer,
 * -1 where none does. ZD_ERR_DATA when there is no template. */
enum zd_status tokenize_chat_prompt(
        const struct tokenizer *tokenizer, const char *content,
        const struct chat_choice *choice, struct token_vector *ids,
        int32_t *end_out);

/* Tokenizes `list` and passes all words in order to `sink`, from one thread at
 * a time, never the caller's. */
struct tokenize_run {
    const struct file_list *list;
    struct recipe recipe;
    int threads;
    int64_t units; /* at the beginning, whose words are there */
    /* If trained on meanwhile; else NULL. Bounds memory: a thread holds it
     * while it tokenizes a record above UNIT_BYTES. Threads also lower their
     * priority once the first steps have their words. */
    pthread_mutex_t *long_record;
    enum zd_status (*sink)(void *ctx, const uint32_t *words, size_t count);
    void *ctx;
    /* Rows that recipe.skips_bad_rows leaves out, and others that a user is
     * told of: they are added. */
    struct row_notes notes;
};
enum zd_status tokenize_files(struct tokenize_run *run);
