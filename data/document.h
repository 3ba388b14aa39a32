/* document.h - one document on its way from a record to tokens: text in pieces,
 * each with what encoding it takes and whether the loss counts it.
 *
 *   chat:       <|im_start|>  user\nHi  <|im_end|>  \n  <|im_start|> ...
 *               marker        content   marker
 *   alpaca:     instruction \n input \n | output | end of text
 *   alpaca_instruct: the prompt of axolotl's `type: alpaca` | output | end ..
 *   completion: prompt | completion | end of text
 *
 * Markers of a template are recognized as added tokens; what people wrote in a
 * message never is. Neighbors of the same sort become one piece, so that they
 * are encoded as one text and have the ids that the whole text would have. A
 * piece that the loss counts is encoded by itself: the mask falls between
 * tokens, and the ids are those a model is given when it has to answer. */
#ifndef ZD_DATA_DOCUMENT_H
#define ZD_DATA_DOCUMENT_H

#include "base/file/json.h"
#include "data/dataset.h"

struct piece {
    size_t begin, end; /* in document.text */
    unsigned flags;    /* enum encode_flags */
    bool train;
};

struct document {
    char *text; /* owned */
    size_t bytes, capacity;
    struct piece *pieces; /* owned */
    int piece_count;
    size_t piece_capacity;
    bool end_of_text; /* the end-of-text token follows, when there is one */
    bool is_cut; /* the next text is encoded by itself, whatever its sort */
};

void document_clear(struct document *document);
void document_fini(struct document *document);
void document_add(
        struct document *document, const char *text, size_t bytes,
        unsigned flags, bool train);

/* Everything that decides the tokens of a record but the record itself. */
struct recipe {
    const struct tokenizer *tokenizer;
    const struct data_entry *entry;   /* field names */
    enum chat_template chat_template; /* never CHAT_AUTO, once resolved */
    enum train_on train_on;
    int eos;       /* -1: no end-of-text is added */
    bool skips_bad_rows; /* data.on_bad_row */
    bool chat_bos; /* llama3: the template writes BOS, the tokenizer does not */
};

struct chat_message {
    const char *role;
    const char *content;
    size_t content_bytes;
    bool is_masked; /* not trained, whatever train_on says */
};

/* The template that a job gets: CHAT_AUTO takes the one whose markers the
 * tokenizer has. ZD_ERR_CONFIG when there is none. */
enum zd_status chat_template_resolve(
        enum chat_template wanted, const struct tokenizer *tokenizer,
        enum chat_template *template_out);
/* Warn where the model's own template gives other text than ours, for a
 * conversation with or without a system message, and for a tool's turn.
 * ZD_ERR_DATA for a template that takes too much to be rendered. */
enum zd_status chat_template_compare(
        enum chat_template ours, const struct tokenizer *tokenizer);
const char *chat_template_name(enum chat_template chat_template);
/* Resolve the recipe's template for its tokenizer, and whose BOS it takes. */
enum zd_status chat_recipe_resolve(
        enum chat_template wanted, struct recipe *recipe);
/* Append a conversation. */
void chat_render(
        const struct recipe *recipe, const struct chat_message *messages,
        size_t count, struct document *document);

/* A user's message, up to where the assistant begins to answer; *end_out: the
 * token that ends the answer. */
void chat_render_prompt(
        const struct recipe *recipe, const char *content,
        struct document *document, int32_t *end_out);

#endif
