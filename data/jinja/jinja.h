/* jinja.h - chat templates of models: Jinja as transformers sets it up, parsed
 * once and rendered many times.
 *
 * Statements: if, for (with a condition, break, continue), set (also of a block
 * and of a namespace), macro, call, raw, generation. Expressions as Jinja has
 * them, but for powers; filters are the rows of filters.c, tests, methods and
 * functions those of methods.c. White space as with trim_blocks and
 * lstrip_blocks. Values print, compare and fail as in Python; whole numbers
 * have 64 bits, and Unicode's special cases of upper case are left out, but for
 * the sharp s. What else Jinja has (include, extends, with, recursive loops, *
 * in calls, formats by %, other filters and methods) is refused by name and
 * line.
 *
 * Source: Jinja 3.1's documentation of templates; transformers 5.24,
 * utils/chat_template_utils.py. Held against both by
 * tests/reference/chat_compare.py. */
#pragma once

#include "base/file/json.h"

enum jinja_result {
    JINJA_DONE,
    JINJA_RAISED, /* the template refuses what it was given (raise_exception) */
    JINJA_UNKNOWN, /* it has something that is not known here */
    JINJA_FAILED,  /* it does what Python refuses: an attribute of what is
                    * undefined, a sum of a text and a number */
    JINJA_OVER     /* it takes more than its budget (internal.h) */
};

struct jinja_template; /* parsed; never changed, so any threads may share it */

/* A range of bytes of an output. */
struct jinja_span {
    size_t begin, end;
};

/* Freed by jinja_output_fini. All 0 is empty. */
struct jinja_output {
    char *text; /* `bytes` long, and a NUL after them; may hold others */
    size_t bytes;
    struct jinja_span *spans; /* written in {% generation %}, in their order */
    size_t span_count;
};

/* Parse a template once. `out`, to be freed by jinja_free, is set for
 * JINJA_DONE; `why` otherwise (JINJA_FAILED: its syntax is broken).
 */
enum jinja_result jinja_parse(
        const char *source, struct jinja_template **out, char *why,
        size_t why_bytes);
void jinja_free(struct jinja_template *template);
/* {% generation %} is in it. */
bool jinja_has_generation(const struct jinja_template *template);

/* Text that a context has may hold marks, each in place of a word: text that
 * begins and ends with no white space. A mark is two characters of planes 15
 * and 16, which are for private use. */
enum { JINJA_MARK_BYTES = 8, JINJA_PARTS_MAX = 12, JINJA_PART_BYTES = 32 };
bool jinja_is_space(uint32_t c); /* as Python's str.strip knows it */
size_t jinja_blanks(const char *text, size_t bytes); /* that it begins with */
bool jinja_is_printable(uint32_t c);                 /* as its repr does */
void jinja_write_mark(size_t word, char out[JINJA_MARK_BYTES]);
bool jinja_is_mark(const char *text, size_t bytes);
size_t jinja_mark_word(const char *text); /* of the mark there */
const char *jinja_find_mark(const char *text, size_t bytes); /* or NULL */

/* How a rendering depends on the words that marks stand for: what it looked for
 * in them, and which it put in quotes. With other words that are allowed its
 * output is the same but for these. */
struct jinja_watch {
    bool depends; /* in another way */
    struct jinja_part {
        size_t bytes;
        char text[JINJA_PART_BYTES];
    } parts[JINJA_PARTS_MAX];
    int part_count;
    bool *is_quoted; /* (word_count) the caller's */
    size_t word_count;
};
/* May this be the `index`-th word? */
bool jinja_watch_allows(
        const struct jinja_watch *watch, size_t index, const char *word,
        size_t bytes);

/* What some renderings may take. `steps` is left for them together and goes
 * down with each; `bytes` is for each, since its values are freed at its end.
 * JINJA_STEPS_MAX and JINJA_BYTES_MAX (internal.h) bound each too. */
struct jinja_limits {
    size_t steps, most_steps; /* most_steps: before the first, for errors */
    size_t bytes;
    struct jinja_watch *watch; /* NULL: none; filled by a rendering */
};

/* Render with the variables of `context`, an object, which is only read.
 * `strftime_now` among them is a date, "YYYY-MM-DD": with it the function of
 * this name exists, at 00:00 of that day. `out` is set for JINJA_DONE; `why`
 * otherwise: the text that was raised, or what failed ("line 3: ...").
 * `limits` may be NULL: what one rendering may take. */
enum jinja_result jinja_render(
        const struct jinja_template *template, const json_t *context,
        struct jinja_limits *limits, struct jinja_output *out, char *why,
        size_t why_bytes);
void jinja_output_fini(struct jinja_output *output);
