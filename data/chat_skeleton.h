/* chat_skeleton.h - a conversation rendered with marks in place of its words:
 * which text of a template is whose. For chat_spans.c, which says what for. */
#ifndef ZD_DATA_CHAT_SKELETON_H
#define ZD_DATA_CHAT_SKELETON_H

#include "data/chat.h"

enum marked { MARKS_ALL, MARKS_ASSISTANT, MARKS_NONE };

/* A mark is two characters of planes 15 and 16, which are for private use. */
enum { MARK_BYTES = 8, MARK_DIGITS = 15, NO_PLACE = -1 };
enum { SHAPE_MESSAGES = 1000, SHAPE_BYTES = 1 << 20 }; /* else not kept */

struct word { /* what a mark stands for */
    const char *text;
    size_t bytes;
    size_t message;
};

struct place { /* where the skeleton has a mark */
    size_t at, text_begin, text_end;
    size_t word;
};

struct message_place { /* its first and last mark, among the places */
    size_t first, last;
    bool has;
};

struct skeleton {
    struct chat_renderer *renderer;
    const struct conversation *conversation;
    enum marked marked;
    json_t *messages;
    struct word *words;
    size_t word_count, word_capacity;
    struct jinja_output text;
    struct place *places;
    size_t place_count, place_capacity;
    struct message_place *of; /* (messages) */
};

/* A mark, and what it stands for: an index of words. */
bool chat_is_mark(const char *text, size_t bytes);
size_t chat_mark_word(const char *text);
/* The bytes of a text without the white space at its end. */
size_t chat_strip_end(const char *text, size_t bytes);
bool chat_is_assistant(const json_t *message);

/* `s` has its renderer and conversation. *sound_out: it is renderer->text with
 * marks for words. */
enum zd_status skeleton_make(
        struct skeleton *s, enum marked marked, bool *sound_out);
void skeleton_fini(struct skeleton *s);
/* Of its first `count` messages. */
enum zd_status skeleton_render(
        struct skeleton *s, size_t count, bool add_generation_prompt,
        struct jinja_output *out);
/* A place of the template's own text in the skeleton, in the text. */
size_t skeleton_place(const struct skeleton *s, size_t at);

#endif
