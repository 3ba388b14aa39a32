/* document.h - one document on its way from a record to tokens: text in pieces,
 * each with what encoding it takes and whether the loss counts it.
 *
 *   alpaca:     instruction \n input \n | output | end of text
 *   alpaca_instruct: the prompt of axolotl's `type: alpaca` | output | end ..
 *   completion: prompt | completion | end of text
 *   chat:       no pieces; a template has rendered the text (chat.h)
 *
 * Neighbors of the same sort become one piece, so that they are encoded as one
 * text and have the ids that the whole text would have. A piece that the loss
 * counts is encoded by itself: the mask falls between tokens, and the ids are
 * those a model is given when it has to answer. A conversation is encoded as a
 * whole, as transformers does, and the loss counts the tokens that its trained
 * ranges touch. */
#pragma once

#include "base/file/json.h"
#include "data/dataset.h"

struct piece {
    size_t begin, end; /* in document.text */
    bool train;
};

struct text_range {
    size_t begin, end;
};

struct document {
    char *text; /* owned */
    size_t bytes, capacity;
    struct piece *pieces; /* owned */
    int piece_count;
    size_t piece_capacity;
    bool end_of_text; /* the end-of-text token follows, when there is one */
    bool is_cut; /* the next text is encoded by itself, whatever its sort */
    /* Of a conversation. */
    bool is_chat, adds_prefix;  /* the tokenizer's, unless it is there */
    struct text_range *trained; /* in their order; owned */
    size_t trained_count, trained_capacity;
    unsigned ignored; /* bits of enum row_note: what the template ignores */
    int64_t specials; /* special tokens written in its messages */
};

void document_clear(struct document *document);
void document_fini(struct document *document);
/* Text that is in no piece, as that of a conversation. */
void document_append(struct document *document, const char *text, size_t bytes);
void document_add(
        struct document *document, const char *text, size_t bytes, bool train);
/* A range that the loss counts, behind those there are. An empty one within a
 * token counts the token, as in transformers. */
void document_train(struct document *document, size_t begin, size_t end);

struct chat;

/* Everything that decides the tokens of a record but the record itself. */
struct recipe {
    const struct tokenizer *tokenizer;
    const struct data_entry *entry; /* field names */
    struct chat *chat; /* renders conversations; owned; NULL: none */
    enum train_on train_on;
    int eos;             /* -1: no end-of-text is added */
    bool skips_bad_rows; /* data.on_bad_row */
};
