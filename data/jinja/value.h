/* value.h - Python's values. */
#pragma once

#include "base/file/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum kind {
    ABSENT, /* no value: an argument that was not given */
    UNDEFINED,
    NONE,
    BOOL,
    INT,
    FLOAT,
    STRING,
    LIST,
    TUPLE,
    GENERATOR, /* is true, has no length, and can be read only once */
    VIEW,      /* of a mapping: has no indices */
    DICT,
    NAMESPACE,
    LOOP,
    MACRO,
    METHOD,
    FUNCTION,
};
#define KIND(kind) (1 << (kind))
#define SEQUENCES  (KIND(LIST) | KIND(TUPLE) | KIND(VIEW) | KIND(GENERATOR))
#define NUMBERS    (KIND(BOOL) | KIND(INT) | KIND(FLOAT))

struct arguments;
struct jinja;
struct row;

struct value {
    uint8_t kind;
    uint8_t owner; /* UNDEFINED: the kind that lacks the attribute; MACRO: a
                    * missing argument; 0: a variable */
    bool is_safe;  /* STRING: markup, which escapes text that is added to it */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text;    /* STRING; UNDEFINED: its name */
        struct items *items; /* DICT, NAMESPACE: alternating keys and values */
        struct loop *loop;
        struct closure *macro;
        struct method *method;
        const struct row *function;
    };
    size_t bytes; /* length of the text */
};

struct items {
    struct value *at;
    size_t count, capacity;
    bool is_used; /* GENERATOR: has been read */
};

struct pair {
    struct value key, value;
};

struct method { /* bound */
    const struct row *row;
    struct value self;
};

struct loop {
    struct items items;
    size_t at;
};

static const struct value jinja_absent = {.kind = ABSENT};
static inline bool is_one_of(struct value value, int kinds)
{
    return (KIND(value.kind) & kinds) != 0;
}
static inline struct value jinja_none(void)
{
    return (struct value){.kind = NONE};
}
static inline struct value jinja_truth(bool truth)
{
    return (struct value){.kind = BOOL, .truth = truth};
}
static inline struct value jinja_integer(int64_t integer)
{
    return (struct value){.kind = INT, .integer = integer};
}
static inline struct value jinja_real(double real)
{
    return (struct value){.kind = FLOAT, .real = real};
}
static inline struct value jinja_slice(const char *text, size_t bytes)
{
    return (struct value){.kind = STRING, .text = text, .bytes = bytes};
}
/* A part of `of`, with its is_safe flag. */
static inline struct value jinja_part(struct value of, size_t begin, size_t end)
{
    of.text += begin;
    of.bytes = end - begin;
    return of;
}
static inline struct value jinja_word(const char *text)
{
    return jinja_slice(text, strlen(text));
}
static inline bool jinja_is_text(struct value value, const char *text)
{
    return value.kind == STRING && value.bytes == strlen(text) &&
           memcmp(value.text, text, value.bytes) == 0;
}
static inline struct value jinja_undefined(struct value name, enum kind owner)
{
    return (struct value){
            .kind = UNDEFINED,
            .owner = (uint8_t)owner,
            .text = name.text,
            .bytes = name.kind == STRING ? name.bytes : 0};
}

/* --- value.c -------------------------------------------------------------- */

struct value jinja_from_json(struct jinja *j, const json_t *json);
const char *jinja_type(struct value value); /* "str" */
bool jinja_is_true(struct value value);
struct value jinja_copy(struct jinja *j, const char *text, size_t bytes);
struct value jinja_list(
        struct jinja *j, enum kind kind, size_t capacity); /* empty */
/* Only while the list is built. */
void jinja_append(struct jinja *j, struct value list, struct value item);
/* Keys, values or pairs of both. */
struct value jinja_view(
        struct jinja *j, enum kind kind, struct value dict, bool has_keys,
        bool has_values);
void jinja_put(
        struct jinja *j, struct value mapping, struct value key,
        struct value value);
/* NULL: not found. */
const struct value *jinja_find(
        struct jinja *j, struct value mapping, struct value key);
/* The items that a loop over the value visits; false: stopped. A generator is
 * used up. */
bool jinja_iterate(struct jinja *j, struct value value, struct items *out);
/* Fails for values without a length. */
size_t jinja_length(struct jinja *j, struct value value);
size_t jinja_characters(struct value text);
/* The offset after `count` characters from `at`, at most the text's end. */
size_t jinja_past_characters(struct value text, size_t at, size_t count);
/* value.name, value[key], value[from:to:by] (ABSENT where not given). */
struct value jinja_attribute(
        struct jinja *j, struct value value, struct value name,
        const struct row *method); /* the method of this name, or NULL */
struct value jinja_item(struct jinja *j, struct value value, struct value key);
struct value jinja_sliced(
        struct jinja *j, struct value value, const struct value bounds[3]);
void jinja_use_undefined(struct jinja *j, struct value value); /* fails */

/* --- operators (evaluate.c) ----------------------------------------------- */

bool jinja_equal(struct jinja *j, struct value a, struct value b);
/* -1, 0, 1; fails if Python cannot order them, naming `sign`. */
int jinja_compare(
        struct jinja *j, struct value a, struct value b, const char *sign);
bool jinja_is_in(struct jinja *j, struct value value, struct value where);
/* `sign`: + - * / % D (//). */
struct value jinja_operate(
        struct jinja *j, char sign, struct value a, struct value b);
struct value jinja_joined(struct jinja *j, struct value a, struct value b);
/* Returns the text; stops with JINJA_UNKNOWN if it is safe, since markup
 * escapes text that is added. */
struct value jinja_unmarked(struct jinja *j, struct value text);
