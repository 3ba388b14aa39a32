/* chat.h - renders conversations with a chat template: the model's own, a
 * file's, or one of data/templates.
 *
 * A template sees what transformers 5.24 gives it in apply_chat_template:
 * messages, tools, documents, add_generation_prompt, and the special tokens of
 * tokenizer_config.json by their names (bos_token, ...). The text is encoded as
 * a whole, and added tokens are recognized wherever they come from. No BOS is
 * added, since templates write it; only those of data/templates do not, so
 * their text gets the tokenizer's prefix.
 *
 * The loss counts ranges of the text: what each message of the assistant adds
 * to it (chat_spans.c). It counts every token that a range touches. */
#pragma once

#include "data/document.h"
#include "data/jinja/jinja.h"
#include "data/row_notes.h"

/* A template that was chosen; threads may share it. */
struct chat {
    char *name;     /* the word of a job, or the path of a file; owned */
    bool is_own;    /* the model's */
    bool is_layout; /* of data/templates */
    bool has_tags;  /* {% generation %} */
    unsigned ignored, ignored_with_tools; /* bits of enum row_note: what the
                                             template does not read */
    struct jinja_template *template, *with_tools; /* the latter may be NULL */
    json_t *variables;     /* special tokens, and the date of strftime_now */
    char digest[HASH_HEX]; /* of all that decides a text */
};

struct chat_choice {
    enum chat_template name;
    const char *path; /* for CHAT_FILE */
    const char *date; /* "YYYY-MM-DD", for strftime_now; NULL: today */
};

enum { CHAT_DATE_BYTES = 11 };
void chat_today(char date[CHAT_DATE_BYTES]);

/* CHAT_AUTO: the model's own template, else the one whose markers the
 * tokenizer has; without either ZD_ERR_CONFIG, or *out NULL unless `must`.
 * ZD_ERR_DATA: a template that cannot be parsed. */
enum zd_status chat_create(
        const struct chat_choice *choice, const struct tokenizer *tokenizer,
        bool must, struct chat **out);
void chat_destroy(struct chat *chat);
/* Neither the model nor data.chat_template has a template. */
enum zd_status chat_fail_none(
        const struct tokenizer *tokenizer, enum zd_status status);
/* Warns if the job's template differs from the model's own. `names`: also logs
 * which template is used. */
void chat_tell(
        const struct chat *chat, const struct tokenizer *tokenizer, bool names);

/* A conversation as a template gets it. All 0 is empty. */
struct conversation {
    json_t *messages;          /* objects with "role"; owned */
    json_t *tools, *documents; /* owned; NULL: none */
    const json_t *variables;   /* more of them, by name; NULL: none */
    struct turn {
        bool is_assistant;
        bool is_masked; /* not trained, whatever train_on says */
    } * turns;          /* (messages) owned */
    size_t capacity;
};
void conversation_fini(struct conversation *conversation);
/* Takes `message`. */
void conversation_add(
        struct conversation *conversation, json_t *message, bool is_masked);

struct chat_memory; /* chat_skeleton.h */

/* What one thread needs. */
struct chat_renderer {
    const struct chat *chat;
    const struct conversation *talk; /* at hand */
    json_t *context;
    struct jinja_output text;   /* of a conversation, rendered first */
    struct jinja_limits limits; /* of all renderings of it together */
    struct chat_memory *memory; /* of earlier conversations; owned */
};
void chat_renderer_init(
        struct chat_renderer *renderer, const struct chat *chat);
void chat_renderer_fini(struct chat_renderer *renderer);

/* Render `messages` of renderer->talk, or all of them (NULL): then it begins,
 * and its limits are set by its size. ZD_ERR_DATA: the template refuses it,
 * fails, or takes too much. */
enum zd_status chat_render_text(
        struct chat_renderer *renderer, const json_t *messages,
        bool add_generation_prompt, struct jinja_output *out);
/* The text and its trained ranges. ZD_ERR_DATA too where a message's range is
 * not found. */
enum zd_status chat_render(
        struct chat_renderer *renderer, const struct conversation *conversation,
        enum train_on train_on, struct document *document);
/* A user's message up to where the assistant begins to answer or, with
 * `answer` (not NULL), that conversation, of which the answer is trained. */
enum zd_status chat_render_prompt(
        struct chat_renderer *renderer, const char *content, const char *answer,
        struct document *document);

/* Part of chat_render: the ranges of the messages that are wanted in
 * renderer->memory, in renderer->text. `is_whole` there: all that a message
 * adds, where the text before it does not change with it; else, and without
 * `is_whole`, from the end of the generation prompt to its end mark. `known`:
 * the shape of the conversation's key, or NULL. */
struct shape;
enum zd_status chat_find_spans(
        struct chat_renderer *renderer, struct shape *known,
        struct document *document);
