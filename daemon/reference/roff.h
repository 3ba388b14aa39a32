/* roff.h - pieces of a man page (man(7)), for man-db's groff and for mandoc. */
#ifndef ZD_DAEMON_REFERENCE_ROFF_H
#define ZD_DAEMON_REFERENCE_ROFF_H

#include <stdio.h>

/* The head of the page NAME(section): "ZEROD", 1. */
void roff_begin(FILE *stream, const char *name, int section);
/* A line of text: what roff would read as its own is escaped, words between
 * backticks are bold. */
void roff_text(FILE *stream, const char *text);
/* The same without the end of the line, and of one font. */
void roff_inline(FILE *stream, const char *text);
void roff_heading(FILE *stream, const char *title);
void roff_subheading(FILE *stream, const char *title);
/* Lines as they are. */
void roff_example(FILE *stream, const char *lines);

#endif
