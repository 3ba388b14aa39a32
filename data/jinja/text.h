/* text.h - text as Python's str has it: white space, case and classes of
 * Unicode. */
#pragma once

#include "data/jinja/internal.h"

/* Where white space, or characters of `set`, end from the left and the right.
 */
struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right);
uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out);
enum letter_case { LOWER, UPPER, CAPITAL };
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
