/* document.h - one document on its way from a record to tokens: its text, and
 * ranges of it that the loss counts.
 *
 *   alpaca:     instruction \n input \n | output | end of text
 *   alpaca_instruct: the prompt of axolotl's `type: alpaca` | output | end ..
 *   completion: prompt | completion | end of text
 *   chat:       a template has rendered the text (chat.h)
 *
 * A range is encoded by itself, and so is the text between two: the mask falls
 * between tokens, and the ids are those a model is given when it has to answer.
 * A conversation is encoded as a whole, as transformers does, and the loss
 * counts the tokens that its ranges touch. */
#pragma once

#include "data/dataset.h"

struct text_range {
    size_t begin, end;
};

struct document {
    char *text; /* owned */
    size_t bytes, capacity;
    struct text_range *trained; /* in their order; owned */
    size_t trained_count, trained_capacity;
    bool end_of_text; /* the end-of-text token follows, when there is one */
    bool is_cut;      /* a range ends here, whatever the next text is */
    /* Of a conversation. */
    bool is_chat, adds_prefix; /* the tokenizer's, unless it is there */
    unsigned ignored; /* bits of enum row_note: what the template ignores */
    int64_t specials; /* special tokens written in its messages */
};

void document_clear(struct document *document);
void document_fini(struct document *document);
void document_append(struct document *document, const char *text, size_t bytes);
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
void recipe_fini(struct recipe *recipe);
