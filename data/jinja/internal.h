/* internal.h - shared by the files of this folder. parse.c and
 * parse_expression.c turn the source into tokens and these into a tree; run.c
 * runs statements, evaluate.c evaluates expressions. Values are in value.c and
 * print.c; filters, tests, methods and functions are table rows in filters.c
 * and methods.c. run.c charges all work to one budget and owns the memory,
 * which is freed only at the end.
 *
 * Values behave as in Python; only namespaces are mutable. Text is UTF-8 with a
 * byte count, borrowed from the context, the template or the rendering's
 * memory. Indices and lengths of text are in characters. */
#pragma once

#include "data/jinja/jinja.h"
#include "data/jinja/value.h"

struct chunk;
struct scope;

/* Limits of one rendering. A template comes with a model from the network, so
 * it may be hostile: deeply nested, endless or huge.
 *
 *   depth   blocks, expressions, calls and printed values within others
 *   steps   tokens read, nodes evaluated, items visited, 64 bytes copied
 *   bytes   values made, text written
 *
 * Parser, evaluator, comparison and output all charge this one budget. Work
 * beyond it is refused with JINJA_OVER before it starts. Every walk over values
 * is charged and bounded in depth: a namespace may contain itself.
 *
 * A step takes about 20 ns, the whole budget a second or two. A message of a
 * conversation takes 20 to 200 steps. Renderings of one conversation share a
 * smaller budget (jinja.h, struct jinja_limits). */
enum {
    JINJA_NESTING_MAX = 100, /* in a template's source */
    JINJA_DEPTH_MAX = 1000,  /* while it is rendered */
    JINJA_STEPS_MAX = 50000000,
    JINJA_BYTES_MAX = 1 << 30
};

struct jinja_budget { /* what is left */
    int depth, most_depth;
    size_t steps, bytes;
    size_t most_steps, most_bytes; /* named in errors */
};

struct jinja { /* the state of one parse or one rendering */
    struct jinja_budget left;
    enum jinja_result result;
    char *why;
    size_t why_bytes;
    int line; /* current line of the template */
    struct chunk *chunks;
    struct {
        const char *base;
        size_t used, capacity;
    } grown[4]; /* the latest arrays from jinja_extend */
    int next_grown;
    /* rendering only */
    const struct jinja_template *template;
    const json_t *context;
    struct value *variables; /* the template's, by symbol; ABSENT: not yet read
                              * from the context */
    struct scope *scope;     /* innermost; NULL: template scope */
    struct jinja_output *out;
    size_t out_capacity, span_capacity;
    struct jinja_watch *watch; /* NULL: none */
    const char *date;          /* "YYYY-MM-DD", what strftime_now() formats */
    int captures;              /* open captures */
    size_t outer_bytes;        /* output bytes before the outermost capture */
};

struct jinja_budget jinja_budget_whole(int depth);
/* Charges a step, and one more for every 64 bytes. */
bool jinja_read(struct jinja *j, size_t bytes);
/* Checks, without charging, that the budget covers `count` items of `bytes`, a
 * step for every 64 bytes included; if not, stops the rendering and returns
 * false. */
bool jinja_affords(struct jinja *j, uint64_t count, size_t bytes);
/* Stop the rendering because the budget is exceeded; return false. */
bool jinja_refuse(struct jinja *j, size_t steps);
bool jinja_too_deep(struct jinja *j);
/* Memory that lives as long as the parsed template or the rendering; never
 * NULL. It allocates even over budget, so charge large requests first. */
void *jinja_alloc(struct jinja *j, size_t bytes);
void jinja_release(struct jinja *j); /* frees all of it */
/* Returns memory that holds the `used` bytes at `base` and has room for `more`.
 * Extends `base` in place if it came from here and nothing follows it, so that
 * repeated appends take linear time. NULL: the rendering has stopped. */
void *jinja_extend(struct jinja *j, const void *base, size_t used, size_t more);

static inline bool is_ok(const struct jinja *j) /* the rendering has not
                                                   stopped */
{
    return j->result == JINJA_DONE;
}
/* False: over budget or already stopped; the rendering has stopped. */
static inline bool jinja_charge(struct jinja *j, size_t steps, size_t bytes)
{
    struct jinja_budget *left = &j->left;
    if (j->result != JINJA_DONE)
        return false;
    if (steps > left->steps || bytes > left->bytes)
        return jinja_refuse(j, steps);
    left->steps -= steps;
    left->bytes -= bytes;
    return true;
}
/* Enters one level of recursion. Call jinja_leave only if this returned
 * true. */
static inline bool jinja_enter(struct jinja *j)
{
    if (!jinja_charge(j, 1, 0))
        return false;
    return j->left.depth-- > 0 || (j->left.depth++, jinja_too_deep(j));
}
static inline void jinja_leave(struct jinja *j)
{
    j->left.depth++;
}

/* Stop the rendering with a result; the first reason is kept, with its line
 * unless 0. jinja_fail: Python fails here too. jinja_unknown: a Jinja feature
 * that we do not support. */
#define jinja_fail(j, ...) jinja_stop(j, JINJA_FAILED, (j)->line, __VA_ARGS__)
#define jinja_unknown(j, ...)                                                  \
    jinja_stop(j, JINJA_UNKNOWN, (j)->line, __VA_ARGS__)
void jinja_stop(
        struct jinja *j, enum jinja_result result, int line, const char *format,
        ...) __attribute__((format(printf, 4, 5)));

/* --- marks (print.c) ------------------------------------------------------ */

void jinja_note_look(
        struct jinja_watch *watch, struct value text, const struct value *part);
/* Records that the rendering depends on a text: on whether and where it
 * contains `part`, or (NULL) on anything else about it. */
static inline void jinja_looks(
        struct jinja *j, struct value text, const struct value *part)
{
    if (j->watch && jinja_read(j, text.bytes))
        jinja_note_look(j->watch, text, part);
}

/* --- what is written (print.c) -------------------------------------------- */

void jinja_write(struct jinja *j, const char *text, size_t bytes);
/* Captures output from here until jinja_captured takes it. */
size_t jinja_capture(struct jinja *j);
struct value jinja_captured(struct jinja *j, size_t since);
void jinja_write_str(struct jinja *j, struct value value); /* as str() */
struct style { /* the style of repr() or of json.dumps() with its arguments */
    bool is_json, is_ascii;
    int64_t indent, level; /* indent < 0: one line */
    struct value between, after_key;
};
void jinja_write_styled(
        struct jinja *j, struct style *style, struct value value);
/* As str() and str.join convert it; text keeps its is_safe flag. */
struct value jinja_str(struct jinja *j, struct value value);

/* --- what is called ------------------------------------------------------- */

struct arguments {
    struct value *at;
    size_t count;
    struct pair *named;
    size_t named_count;
};

/* `a` has the row's parameters in order, ABSENT if not given; `given` has all
 * arguments, for rows that take any ("*"). */
typedef struct value call_fn(
        struct jinja *j, struct value self, const struct value *a,
        const struct arguments *given);

/* A row's function; for lists X(name, parameters, kinds, result): a row's
 * function, and the row. */
#define JINJA_FUNCTION(name)                                                   \
    static struct value name(                                                  \
            struct jinja *j, struct value self, const struct value *a,         \
            const struct arguments *given)
#define JINJA_ROW_FUNCTION(name, parameters, kinds, result)                    \
    JINJA_FUNCTION(row_##name)                                                 \
    {                                                                          \
        return result;                                                         \
    }
#define JINJA_ROW(name, parameters, kinds, result)                             \
    {#name, row_##name, parameters, kinds},

struct row {
    const char *name;
    call_fn *call;
    const char *parameters; /* "old! new! count"; !: required */
    int kinds;              /* bits of the allowed kinds of `self`; 0: any */
};
enum { PARAMETERS_MAX = 6 };

const struct row *jinja_row(
        const struct row *rows, const char *name, size_t bytes);
/* A filter or a test; NULL: not supported. */
const struct row *jinja_named_row(
        struct jinja *j, struct value name, bool is_test);
/* Each list ends with a row without a name. */
extern const struct row jinja_filters[], jinja_tests[], jinja_functions[],
        jinja_methods[];

/* A named argument; NULL: not given. */
const struct value *jinja_named(
        const struct arguments *given, const char *name, size_t bytes);
struct value jinja_call_row(
        struct jinja *j, const struct row *row, struct value self,
        const struct arguments *given);

/* --- text as Python's str has it: white space, case and classes of Unicode --
 */

/* Strips white space, or the characters of `set`, from the given sides. */
struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right);
uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out);
enum letter_case { LOWER, UPPER, CAPITAL, TITLE };
struct value jinja_in_case(
        struct jinja *j, struct value text, enum letter_case to);
/* Replaces up to `most` times; below 0: all. */
struct value jinja_replaced(
        struct jinja *j, struct value text, struct value from, struct value to,
        int64_t most);
/* Joins items into one text. */
struct value jinja_join_items(
        struct jinja *j, struct value separator, const struct items *items,
        bool must_be_text);
/* Arguments with their defaults. */
static inline int64_t integer_or(struct value value, int64_t other)
{
    return value.kind == INT    ? value.integer
           : value.kind == BOOL ? value.truth
                                : other;
}
static inline struct value text_or(struct value value, const char *other)
{
    return value.kind == ABSENT ? jinja_word(other) : value;
}
