/* internal.h - what the files of this room share: a template in parts, values
 * in their pool, and the place that is read. A template is cut (cut.c), its
 * statements are run (run.c), their expressions evaluated (expression.c) over
 * values (value.c) and what can be called (call.c). */
#ifndef ZD_DATA_JINJA_INTERNAL_H
#define ZD_DATA_JINJA_INTERNAL_H

#include "data/jinja/jinja.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    JINJA_ITEMS_MAX = 4096,
    JINJA_SCOPES_MAX = 32,
    JINJA_DEPTH_MAX = 64,
    JINJA_STEPS_MAX = 100000,
    JINJA_NAME_BYTES = 64
};

enum jinja_item_kind { TEXT, OUTPUT, STATEMENT };
struct jinja_item {
    enum jinja_item_kind kind;
    const char *text; /* of a statement and an expression: without its tags */
    size_t bytes;
};

struct jinja {
    struct jinja_item *items; /* JINJA_ITEMS_MAX */
    int count;
    json_t *pool;                     /* owns every value */
    json_t *scopes[JINJA_SCOPES_MAX]; /* owned by the pool */
    int scope_count;
    FILE *out;
    enum jinja_result result;
    char *why;
    size_t why_bytes;
    int skip;  /* above 0: parsed, not evaluated */
    int depth; /* of expressions */
    int steps;
};

/* --- parts (cut.c) ---------------------------------------------------------
 */

void jinja_cut(struct jinja *j, const char *source);

/* --- values (value.c): the pool's; NULL is what is undefined ---------------
 */

/* The first reason stays. */
void jinja_stop(
        struct jinja *j, enum jinja_result result, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
json_t *jinja_keep(struct jinja *j, json_t *value); /* takes it */
json_t *jinja_text(struct jinja *j, const char *text, size_t bytes);
json_t *jinja_truth(bool value);
bool jinja_is_true(const json_t *value);
char *jinja_spell(const json_t *value); /* as it is printed; to be freed */
const json_t *jinja_joined(struct jinja *j, const json_t *a, const json_t *b);
const json_t *jinja_find(const struct jinja *j, const char *name);
void jinja_push(struct jinja *j); /* a scope */
const json_t *jinja_item(
        struct jinja *j, const json_t *value, const json_t *key);
/* value[from:to:by]; what is not given is NULL. */
const json_t *jinja_sliced(
        struct jinja *j, const json_t *value, const json_t *from,
        const json_t *to, const json_t *by);
bool jinja_is_in(const json_t *value, const json_t *where);

/* --- what is called, with its arguments by place and by name (call.c) ------
 */

const json_t *jinja_function(
        struct jinja *j, const char *name, const json_t *list, json_t *names);
const json_t *jinja_method(
        struct jinja *j, const json_t *value, const char *name,
        const json_t *list);
const json_t *jinja_filter(
        struct jinja *j, const json_t *value, const char *name,
        const json_t *list);
bool jinja_test(struct jinja *j, const json_t *value, const char *name);

/* --- expressions (expression.c) --------------------------------------------
 */

struct jinja_cursor {
    struct jinja *j;
    const char *at, *end;
};

void jinja_blanks(struct jinja_cursor *c); /* goes past them */
/* Past this mark, word or name behind blanks; false: something else is there.
 */
bool jinja_take(struct jinja_cursor *c, const char *mark);
bool jinja_word(struct jinja_cursor *c, const char *word);
bool jinja_name(struct jinja_cursor *c, char name[JINJA_NAME_BYTES]);
const json_t *jinja_evaluate(struct jinja_cursor *c);
/* The same without "if .. else": `is_or`, or what "or" stands between. */
const json_t *jinja_operand(struct jinja_cursor *c, bool is_or);

#endif
