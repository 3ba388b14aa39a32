/* chat_skeleton.h - reuses the rendering of conversations that differ only in
 * words. For chat.c and chat_spans.c.
 *
 *   messages [{"role": "user", "content": " Hi\n"}]
 *   key      [{"role": "user", "content": " [0]\n"}]    word 0: Hi
 *   skeleton <|im_start|>user\n [0]\n<|im_end|>\n
 *
 * The key is the JSON of the messages with marks in place of what they say. A
 * mark keeps what templates look for: space around a text, and the words of
 * `kept`. The skeleton is the key rendered; with the words put back it has to
 * be the conversation's text, byte by byte. So it shows where each message's
 * words are in the text, and which text is the template's own.
 *
 * Conversations of one key have one shape: the skeleton, what of it is trained,
 * and how the template looks into words (struct jinja_watch). Where it allows
 * the words of another conversation, its text is made of the skeleton without
 * being rendered. */
#pragma once

#include "data/chat.h"

enum marked {
    MARKS_ALL,
    MARKS_ASSISTANT,
    MARKS_PIECES, /* of the assistant's words, cut where JSON or repr() escape
                     or quote otherwise */
    MARKS_BLANK,  /* the same, and of content that is none beside calls */
    MARKS_NONE
};

#define NO_PLACE SIZE_MAX
#define A_USER   SIZE_MAX /* instead of a count of messages: one of a user */
enum { MARK_BYTES = JINJA_MARK_BYTES };
enum {
    CHAT_SHAPES = 1024,
    CHAT_PROBES = 8,
    CHAT_EDGES = 32,
    SHAPE_BYTES = 256 << 10,
    SHAPES_BYTES = 4 << 20 /* of all; more than these drop all */
};

struct word { /* what a mark stands for */
    const char *text;
    size_t bytes;
    size_t message;
    bool is_blank; /* all that an assistant says is white space, or nothing: the
                      template may leave it out */
};

struct place {           /* where the skeleton has a mark */
    size_t at, text_end; /* text_end: of the word, in the text at hand */
    size_t word;
};

struct shape {
    char *key;
    size_t key_bytes;
    struct jinja_output text; /* the skeleton */
    struct place *places;
    size_t place_count, place_capacity;
    struct text_range *ranges; /* that are trained, in the skeleton */
    size_t range_count, range_capacity;
    unsigned ignored; /* as in struct document */
    struct jinja_watch watch;
};

struct chat_memory {
    char *key; /* of the conversation at hand; what follows its messages decides
                  the shape too */
    size_t key_bytes, key_capacity, messages_bytes;
    struct word *words; /* of it, borrowed from its messages */
    size_t message;     /* that is written */
    size_t word_count, word_capacity;
    bool has_blank, in_pieces;
    unsigned ignored; /* of what is kept */
    bool *wanted;     /* (messages) that are trained or, with is_whole, not */
    size_t wanted_capacity;
    bool is_whole;
    struct shape *shapes[CHAT_SHAPES]; /* owned, by the hash of their keys */
    size_t shapes_bytes;
};
void chat_memory_destroy(struct chat_memory *memory);

/* Key and words of renderer->talk, of which `wanted` and `is_whole` are set. */
void chat_write_key(struct chat_renderer *renderer, enum marked marked);
/* That of the key, or NULL. */
struct shape *chat_find_shape(struct chat_memory *memory);
/* Moves `shape` into the memory. */
void chat_keep_shape(struct chat_memory *memory, struct shape *shape);
void shape_fini(struct shape *shape);
void shape_train(struct shape *shape, size_t begin, size_t end);
/* Is this the skeleton with the words put back? Then its places are known. */
bool shape_explains(
        struct shape *shape, const struct chat_memory *memory,
        const struct jinja_output *text);
/* The text made without rendering; false: the words may change it. */
bool shape_fill(
        struct shape *shape, const struct chat_memory *memory,
        struct document *document);
/* Train its ranges. */
void shape_apply(const struct shape *shape, struct document *document);

struct message_place { /* its first and last mark, among the places */
    size_t first, last;
    bool has;
    bool is_torn; /* it has others after those of a later one */
    bool repeats; /* words of it, maybe in a later one, as gpt-oss the name of a
                     tool */
};

/* Where ranges begin or end between two marks. */
struct edges {
    struct edge {
        size_t from, bytes; /* in the skeleton */
        size_t found;       /* after `from` */
    } of[CHAT_EDGES];
    size_t count; /* ever; the last ones stay */
};

struct skeleton { /* of renderer->talk */
    struct chat_renderer *renderer;
    enum marked marked;
    enum zd_status status; /* of its renderings, but for what is refused */
    bool is_sound;         /* it explains renderer->text */
    json_t *messages;      /* of the key */
    struct shape shape;
    struct message_place *of; /* (messages) */
    struct edges begins, ends;
    struct prefix { /* of skeleton_text, the last ones */
        size_t count;
        struct jinja_output text;
    } prefixes[3][2];
};

/* `s` has its renderer; the key is written. */
void skeleton_make(struct skeleton *s, enum marked marked);
void skeleton_fini(struct skeleton *s);
/* Of its first `count` messages, or of A_USER. NULL: the template refuses them,
 * or s->status is an error. Valid until another count that is as even or odd is
 * asked for. */
const struct jinja_output *skeleton_text(
        struct skeleton *s, size_t count, bool add_generation_prompt);

/* The bytes of a text without the white space at its end. */
size_t chat_strip_end(const char *text, size_t bytes);
