/* jinja.h - as much of Jinja as chat templates of models are written in, to see
 * what text they make. Training data is never rendered with it.
 *
 * Statements: for, if, set, generation. Expressions: literals, variables,
 * attributes, indices and slices, arithmetic on whole numbers, comparisons,
 * tests, filters and the methods of strings and mappings that such templates
 * call. White space as with trim_blocks and lstrip_blocks, which transformers
 * sets. Values are JSON's; a variable that is not there is undefined. */
#ifndef ZD_DATA_JINJA_JINJA_H
#define ZD_DATA_JINJA_JINJA_H

#include "base/file/json.h"

enum jinja_result {
    JINJA_DONE,
    JINJA_RAISED, /* the template refuses what it was given (raise_exception) */
    JINJA_UNKNOWN, /* it has something that is not known here */
    JINJA_OVER     /* it takes more than its budget (budget.h) */
};

/* Render `source` with the variables of `context`, an object. `text_out`, to be
 * freed, is set for JINJA_DONE; `why` otherwise: what was raised, what is
 * not known, or what it takes ("takes more than 2000000 steps"). */
enum jinja_result jinja_render(
        const char *source, const json_t *context, char **text_out, char *why,
        size_t why_bytes);

#endif
