/* printable.h - text of others (names, messages, what a model says) on a
 * terminal, where control codes would move the cursor, change its title or
 * color, or turn the direction of what is read.
 *
 * A character is not printable when it is a control code (C0, DEL, C1), a mark
 * that turns the direction of text or ends a line, or no UTF-8. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PRINTABLE_MAX = 16 };

/* The bytes of the first character of `text`, and what is shown for it: itself,
 * or \xHH or \u{HHHH} for one that is not printable. `bytes` is not 0. */
size_t printable_one(const char *text, size_t bytes, char out[PRINTABLE_MAX]);
bool printable_is(const char *text, size_t bytes);

/* `text` as it may be shown, NUL-terminated; cut between characters where it
 * does not fit. Characters of `keep` stay. */
void printable_copy(
        char *out, size_t out_bytes, const char *text, size_t bytes,
        const char *keep);
/* How many bytes at the end begin a character that is not whole. */
size_t printable_tail(const char *text, size_t bytes);

/* To a terminal all but line ends and tabs is escaped; to files and pipes it
 * goes as it is. Text may come in pieces that end within a character. */
struct printable {
    FILE *out;
    bool is_terminal;
    size_t held_bytes; /* private */
    char held[4];
};
struct printable printable_to(FILE *out);
void printable_put(struct printable *to, const char *text, size_t bytes);
/* The held-back bytes are not a character: show them escaped. */
void printable_end(struct printable *to);
