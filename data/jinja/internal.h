/* internal.h - what the files of this room share: a template in parts, values
 * in their pool, and the place that is read. A template is cut (cut.c), its
 * statements are run (run.c), their expressions evaluated (expression.c) over
 * values (value.c) and what can be called (call.c). All of it is paid for from
 * one budget (budget.h).
 *
 * Values are immutable once the expression that makes them has ended. Only a
 * namespace changes later, and it is not a value: it is reached by the name
 * that
 * {% set %} gave it and cannot be put into anything. So values form no cycle.
 */
#ifndef ZD_DATA_JINJA_INTERNAL_H
#define ZD_DATA_JINJA_INTERNAL_H

#include "data/jinja/budget.h"
#include "data/jinja/jinja.h"

#include <stdbool.h>
#include <stdio.h>

enum { JINJA_SCOPES_MAX = 32, JINJA_NAME_BYTES = 64 };

enum jinja_item_kind { TEXT, OUTPUT, STATEMENT };
enum jinja_tag {
    OTHER,
    IF,
    ELIF,
    ELSE,
    ENDIF,
    FOR,
    ENDFOR,
    SET,
    GENERATION,
    ENDGENERATION
};
struct jinja_item {
    enum jinja_item_kind kind;
    enum jinja_tag tag; /* what a STATEMENT begins with */
    int next;           /* of if, elif, else, for: the tag that ends the part */
    const char *text;   /* of a statement and an expression: without its tags */
    size_t bytes;
};

struct jinja_template {
    char *source;
    struct jinja_item *items;
    int count, capacity;
};

struct jinja_scope { /* objects, owned */
    json_t *values, *namespaces;
};

struct jinja {
    struct jinja_budget left;
    const struct jinja_item *items;
    int count;
    json_t **pool; /* owns every value, oldest first */
    size_t pool_count, pool_capacity;
    struct jinja_scope scopes[JINJA_SCOPES_MAX];
    int scope_count;
    const json_t *fresh; /* what namespace() made in this statement */
    FILE *out;
    struct jinja_output *output;
    size_t written;
    int generations; /* open blocks */
    enum jinja_result result;
    char *why;
    size_t why_bytes;
    int skip; /* above 0: parsed, not evaluated; every value is NULL */
};

/* The rendering ends with this result (budget.c); the first reason stays. */
void jinja_stop(
        struct jinja *j, enum jinja_result result, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* --- parts (cut.c) ---------------------------------------------------------
 */

void jinja_cut(struct jinja *j, struct jinja_template *template);

/* --- values (value.c): the pool's; NULL is what is undefined ---------------
 */

json_t *jinja_keep(struct jinja *j, json_t *value); /* takes it */
json_t *jinja_text(struct jinja *j, const char *text, size_t bytes);
json_t *jinja_list(struct jinja *j);
json_t *jinja_mapping(struct jinja *j);
/* Undefined becomes None. */
void jinja_append(struct jinja *j, json_t *list, const json_t *value);
void jinja_put(
        struct jinja *j, json_t *mapping, const char *key, const json_t *value);
json_t *jinja_keys(struct jinja *j, const json_t *mapping);
json_t *jinja_truth(bool value);
bool jinja_is_true(const json_t *value);
bool jinja_equal(struct jinja *j, const json_t *a, const json_t *b);
/* As it is printed, and as JSON; NULL: stopped. */
const json_t *jinja_spell(struct jinja *j, const json_t *value);
const json_t *jinja_json(struct jinja *j, const json_t *value);
const json_t *jinja_joined(struct jinja *j, const json_t *a, const json_t *b);
/* A variable; `is_namespace_out` may be NULL. */
const json_t *jinja_find(
        const struct jinja *j, const char *name, bool *is_namespace_out);
void jinja_bind(
        struct jinja *j, const char *name, const json_t *value,
        bool is_namespace);
bool jinja_push(struct jinja *j); /* a scope */
void jinja_pop(struct jinja *j);
const json_t *jinja_item(
        struct jinja *j, const json_t *value, const json_t *key);
/* value[from:to:by]; what is not given is NULL. */
const json_t *jinja_sliced(
        struct jinja *j, const json_t *value, const json_t *from,
        const json_t *to, const json_t *by);
bool jinja_is_in(struct jinja *j, const json_t *value, const json_t *where);

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
/* Past this mark, word or name after blanks; false: something else is there.
 */
bool jinja_take(struct jinja_cursor *c, const char *mark);
bool jinja_word(struct jinja_cursor *c, const char *word);
bool jinja_name(struct jinja_cursor *c, char name[JINJA_NAME_BYTES]);
const json_t *jinja_evaluate(struct jinja_cursor *c);
/* The same without "if .. else": `is_or`, or what "or" stands between. */
const json_t *jinja_operand(struct jinja_cursor *c, bool is_or);

#endif
