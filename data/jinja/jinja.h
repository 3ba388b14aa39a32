/* jinja.h - renders models' chat templates: Jinja as transformers configures
 * it, parsed once and rendered many times.
 *
 * Statements: if, for (with a condition, break, continue), set (also of a block
 * and of a namespace), macro, call, raw, generation. Expressions as in Jinja,
 * except powers; filters.c lists the filters, methods.c the tests, methods and
 * functions. White space as with trim_blocks and lstrip_blocks. Values print,
 * compare and fail as in Python; but integers have 64 bits, and of Unicode's
 * special cases of upper case only the sharp s is supported. The rest of Jinja
 * (include, extends, with, recursive loops, * in calls, % formats, other
 * filters and methods) is refused by name and line.
 *
 * Source: Jinja 3.1's documentation of templates; transformers 5.24,
 * utils/chat_template_utils.py. Compared with both by
 * tests/reference/chat_compare.py. */
#pragma once

#include "base/file/json.h"

enum jinja_result {
    JINJA_DONE,
    JINJA_RAISED,  /* the template called raise_exception */
    JINJA_UNKNOWN, /* it uses an unsupported feature */
    JINJA_FAILED,  /* Python fails here too: an attribute of an undefined value,
                    * a sum of a string and a number */
    JINJA_OVER     /* it exceeds its budget (internal.h) */
};

struct jinja_template; /* parsed; immutable, so threads may share it */

/* A range of bytes of an output. */
struct jinja_span {
    size_t begin, end;
};

/* Freed by jinja_output_fini. All 0 is empty. */
struct jinja_output {
    char *text; /* `bytes` long, then a NUL; may contain other NULs */
    size_t bytes;
    struct jinja_span *spans; /* written in {% generation %}, in order */
    size_t span_count;
};

/* Parses a template. Sets `out` (free it with jinja_free) if JINJA_DONE, else
 * `why` (JINJA_FAILED: a syntax error). */
enum jinja_result jinja_parse(
        const char *source, struct jinja_template **out, char *why,
        size_t why_bytes);
void jinja_free(struct jinja_template *template);
/* The template uses {% generation %}. */
bool jinja_has_generation(const struct jinja_template *template);

/* Text in a context may contain marks. A mark stands for a word: text that
 * neither begins nor ends with white space. It is two characters of the
 * private-use planes 15 and 16. */
enum { JINJA_MARK_BYTES = 8, JINJA_PARTS_MAX = 12, JINJA_PART_BYTES = 32 };
bool jinja_is_space(uint32_t c); /* as in Python's str.strip */
size_t jinja_blanks(const char *text, size_t bytes); /* bytes of leading white
                                                        space */
bool jinja_is_printable(uint32_t c);                 /* as in Python's repr */
void jinja_write_mark(size_t word, char out[JINJA_MARK_BYTES]);
bool jinja_is_mark(const char *text, size_t bytes);
size_t jinja_mark_word(const char *text); /* the word of the mark at `text` */
const char *jinja_find_mark(const char *text, size_t bytes); /* or NULL */

/* How a rendering depends on the words that marks stand for: what it searched
 * for in them, and which it quoted. If jinja_watch_allows accepts other words,
 * they alone change in the output. */
struct jinja_watch {
    bool depends; /* on the words in some other way */
    struct jinja_part {
        size_t bytes;
        char text[JINJA_PART_BYTES];
    } parts[JINJA_PARTS_MAX];
    int part_count;
    bool *is_quoted; /* (word_count) caller-owned */
    size_t word_count;
};
/* May this be the `index`-th word? */
bool jinja_watch_allows(
        const struct jinja_watch *watch, size_t index, const char *word,
        size_t bytes);

/* Limits of several renderings. `steps` is what all together have left and goes
 * down with each; `bytes` is per rendering, since each frees its values.
 * JINJA_STEPS_MAX and JINJA_BYTES_MAX (internal.h) also bound each. */
struct jinja_limits {
    size_t steps, most_steps; /* most_steps: the initial value, for errors */
    size_t bytes;
    struct jinja_watch *watch; /* NULL: none; renderings fill it */
};

/* Renders with the variables of `context`, an object, which is only read. If it
 * has `strftime_now`, a date "YYYY-MM-DD", the function of this name exists and
 * returns 00:00 of that day. Sets `out` if JINJA_DONE, else `why`: the raised
 * text, or what failed ("line 3: ..."). `limits` may be NULL: then only the
 * limits of one rendering apply. */
enum jinja_result jinja_render(
        const struct jinja_template *template, const json_t *context,
        struct jinja_limits *limits, struct jinja_output *out, char *why,
        size_t why_bytes);
void jinja_output_fini(struct jinja_output *output);
