/* look.h - what the reader's screen can show, and text that is safe on it.
 *
 * Everything that comes from a job (names, messages, prompts) passes
 * text_escape before it is printed. Widths are in columns of the screen. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct look {
    FILE *out;   /* where text goes */
    int columns; /* 0: as many as it takes (a pipe) */
    int rows;    /* 0: likewise */
    bool has_utf8, has_color;
    double now; /* seconds since 1970 */
};

/* Of stdout: COLUMNS, the terminal, NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG. */
struct look look_of_stdout(void);

/* Escape codes, "" without color. */
enum look_style {
    LOOK_PLAIN, /* back to it */
    LOOK_BOLD,
    LOOK_DIM,
    LOOK_GOOD,
    LOOK_WARN,
    LOOK_BAD,
    LOOK_ACCENT,
    LOOK_INVERSE
};
const char *look_style(const struct look *look, enum look_style style);
/* The style of a job's state. */
enum look_style look_of_state(const char *state);

/* Control bytes, C1 codes, marks that turn the direction of text and bytes that
 * are no UTF-8 become \n, \t, \xHH or \u{HHHH}; without has_utf8 so does all
 * that is not ASCII. `keeps_lines`: \n and \t stay. Returns a malloc'd string.
 */
char *text_escape(
        const struct look *look, const char *text, size_t bytes,
        bool keeps_lines);
/* Print text of a job, escaped. */
void text_print(const struct look *look, const char *text, bool keeps_lines);
/* Columns that escaped text takes. */
int text_width(const char *text);
/* Bytes of escaped text that fit `columns` (0: all), up to a blank where one is
 * among them. */
size_t text_break(const char *text, int columns);
/* Print at most `columns` of escaped text, ".." at the end of one that is cut.
 * Returns the columns printed. */
int text_fit(const struct look *look, const char *text, int columns);

/* Short numbers; "-" for what is not finite. `out` holds TEXT_SHORT bytes. */
enum { TEXT_SHORT = 32 };
char *text_number(double value, char *out);   /* 2.3101, 1.2e-05 */
char *text_count(double value, char *out);    /* 491.5k, 9.0M */
char *text_bytes(double value, char *out);    /* 3.2 GiB */
char *text_duration(double value, char *out); /* 0.220s 45s 2m05s 3h20m 2d4h */
#define TEXT_DURATION(value) text_duration((value), (char[TEXT_SHORT]){""})
/* Local time: "20:33:53" today, "Nov 21 20:33" else. */
char *text_time(const struct look *look, double time, char *out);

/* A bar of `columns`, `share` of it full. */
void look_bar(const struct look *look, double share, int columns);
