/* internal.h - what the files of this room share. The source becomes tokens
 * (parse.c), these a tree (parse_expression.c too); statements are run
 * (run.c), expressions evaluated (evaluate.c) over values (value.c,
 * print.c) with filters, tests, methods and functions, each a row of a table
 * (filters.c, methods.c). All of it is paid for from one budget (run.c),
 * which also has the memory: nothing is freed before the end.
 *
 * Values are Python's, immutable but for namespaces. Text is borrowed from the
 * context, the template or the memory of the rendering: bytes of UTF-8 and
 * their count. Indices and lengths of text are in characters. */
#pragma once

#include "data/jinja/jinja.h"
#include "data/jinja/value.h"

struct chunk;
struct scope;

/* What one rendering of a template may take. A template comes with a
 * model from the network, so it may be hostile: deep, endless or huge.
 *
 *   depth   blocks, expressions, calls and printed values within others
 *   steps   tokens read, nodes evaluated, items visited, 64 bytes copied
 *   bytes   values made, text written
 *
 * Parser, evaluator, comparison and output all charge this one budget. What it
 * does not cover is refused with JINJA_OVER before it is done. Every walk over
 * values is charged and bounded in depth: a namespace may hold itself.
 *
 * A step takes about 20 ns, the whole budget a second or two. A message of a
 * conversation takes 20 to 200 steps. Renderings of one conversation share a
 * smaller budget (jinja.h, struct jinja_limits). */
enum {
    JINJA_NESTING_MAX = 100, /* in the text of a template */
    JINJA_DEPTH_MAX = 1000,  /* while it is rendered */
    JINJA_STEPS_MAX = 50000000,
    JINJA_BYTES_MAX = 1 << 30
};

struct jinja_budget { /* what is left */
    int depth, most_depth;
    size_t steps, bytes;
    size_t most_steps, most_bytes; /* named in errors */
};

struct jinja { /* one parsing or one rendering */
    struct jinja_budget left;
    enum jinja_result result;
    char *why;
    size_t why_bytes;
    int line; /* of the template, where it is */
    struct chunk *chunks;
    struct {
        const char *base;
        size_t used, capacity;
    } grown[4]; /* what jinja_extend made last */
    int next_grown;
    /* of a rendering */
    const struct jinja_template *template;
    const json_t *context;
    struct value *variables; /* of the template, by symbol; ABSENT: not yet had
                              * from the context */
    struct scope *scope;     /* innermost; NULL: only the template's */
    struct jinja_output *out;
    size_t out_capacity, span_capacity;
    struct jinja_watch *watch; /* NULL: none */
    const char *date;          /* "YYYY-MM-DD", what strftime_now() formats */
    int captures;              /* open ones */
    size_t outer_bytes;        /* written when the outermost one began */
};

struct jinja_budget jinja_budget_whole(int depth);
/* So many bytes are looked at. */
bool jinja_read(struct jinja *j, size_t bytes);
/* Whether so many bytes, or steps and bytes of so many things of one size, are
 * left, before any is taken; false as by jinja_charge. */
bool jinja_affords(struct jinja *j, uint64_t count, size_t bytes);
/* Both for what is not left: say so, and false. */
bool jinja_refuse(struct jinja *j, size_t steps);
bool jinja_too_deep(struct jinja *j);
/* Memory that lives as long as the parsed template or the rendering; never
 * NULL. Over budget it is still had, in small: what asks for much charges it
 * first. */
void *jinja_alloc(struct jinja *j, size_t bytes);
void jinja_release(struct jinja *j); /* all of it */
/* Memory that begins with the `used` bytes at `base` and has room for `more`.
 * Where `base` was made here and ends there, it is `base` itself: appending to
 * the same text or list again and again takes linear time. NULL: stopped. */
void *jinja_extend(struct jinja *j, const void *base, size_t used, size_t more);

static inline bool is_ok(const struct jinja *j) /* has not stopped */
{
    return j->result == JINJA_DONE;
}
/* False: over budget, or stopped before. The rendering has stopped then. */
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
/* One level down, in every function that recurses; jinja_leave follows only if
 * this was true. */
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

/* It ends with this result; the first reason stays, with its line, if one is
 * given. jinja_fail is for what Python refuses too, jinja_unknown for what
 * Jinja has and we lack. */
#define jinja_fail(j, ...) jinja_stop(j, JINJA_FAILED, (j)->line, __VA_ARGS__)
#define jinja_unknown(j, ...)                                                  \
    jinja_stop(j, JINJA_UNKNOWN, (j)->line, __VA_ARGS__)
void jinja_stop(
        struct jinja *j, enum jinja_result result, int line, const char *format,
        ...) __attribute__((format(printf, 4, 5)));

/* --- marks (print.c) ------------------------------------------------------ */

void jinja_note_look(
        struct jinja_watch *watch, struct value text, const struct value *part);
/* A text decides what is done: whether `part` is found in it, and where among
 * its other parts, or (NULL) anything else of it. */
static inline void jinja_looks(
        struct jinja *j, struct value text, const struct value *part)
{
    if (j->watch && jinja_read(j, text.bytes))
        jinja_note_look(j->watch, text, part);
}

/* --- what is written (print.c) -------------------------------------------- */

void jinja_write(struct jinja *j, const char *text, size_t bytes);
/* Capture what is written from here on, until jinja_captured takes it. */
size_t jinja_capture(struct jinja *j);
struct value jinja_captured(struct jinja *j, size_t since);
void jinja_write_str(struct jinja *j, struct value value); /* as str() */
struct style { /* of repr() or, with its arguments, json.dumps() */
    bool is_json, is_ascii;
    int64_t indent, level; /* indent < 0: one line */
    struct value between, after_key;
};
void jinja_write_styled(
        struct jinja *j, struct style *style, struct value value);
/* As str() or str.join gives it: text stays what it is, with its mark of being
 * safe or not. */
struct value jinja_str(struct jinja *j, struct value value);

/* --- what is called ------------------------------------------------------- */

struct arguments {
    struct value *at;
    size_t count;
    struct pair *named;
    size_t named_count;
};

/* `a` has the row's parameters in order, ABSENT where none was given; `given`
 * is what was given, for rows that take anything ("*"). */
typedef struct value call_fn(
        struct jinja *j, struct value self, const struct value *a,
        const struct arguments *given);

/* A function of a row; a row of a list X(name, parameters, kinds, result), and
 * its function. */
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
    const char *parameters; /* "old! new! count": ! must be given */
    int kinds;              /* of `self`, bits; 0: any */
};
enum { PARAMETERS_MAX = 6 };

const struct row *jinja_row(
        const struct row *rows, const char *name, size_t bytes);
/* A filter or a test; NULL: it is not supported. */
const struct row *jinja_named_row(
        struct jinja *j, struct value name, bool is_test);
/* All rows, each list ended by one without a name. */
extern const struct row jinja_filters[], jinja_tests[], jinja_functions[],
        jinja_methods[];

/* A named argument; NULL: it was not given. */
const struct value *jinja_named(
        const struct arguments *given, const char *name, size_t bytes);
struct value jinja_call_row(
        struct jinja *j, const struct row *row, struct value self,
        const struct arguments *given);

/* --- text as Python's str has it: white space, case and classes of Unicode --
 */

/* Where white space, or characters of `set`, end from the left and the right.
 */
struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right);
uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out);
enum letter_case { LOWER, UPPER, CAPITAL, TITLE };
struct value jinja_in_case(
        struct jinja *j, struct value text, enum letter_case to);
/* Up to `most` times, all for less than 0. */
struct value jinja_replaced(
        struct jinja *j, struct value text, struct value from, struct value to,
        int64_t most);
/* As one text, `separator` between. */
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
