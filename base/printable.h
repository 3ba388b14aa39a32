/* printable.h - untrusted text (names, messages, a model's output) on a
 * terminal, where control codes could move the cursor, change the title or
 * color, or reverse the text.
 *
 * A character is not printable when it is a control code (C0, DEL, C1), a mark
 * that changes the text's direction or ends a line, or is not valid UTF-8. */
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
/* How many bytes at the end are an incomplete character. */
size_t printable_tail(const char *text, size_t bytes);

/* A stream of text. On a terminal, characters that are not printable are
 * escaped, except line ends and tabs; files and pipes get it unchanged. Text
 * may come in pieces that end within a character. */
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
