/* text_stream.h - a stream into text that grows, to be written with stdio.
 *
 * As open_memstream, which silently loses text when memory runs out: here the
 * text is complete, or the process ends (base/must.h). */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

/* Once the stream is flushed or closed, *text_out is what was written, with a
 * zero after it, and *bytes_out (or NULL) its length without that; the caller
 * frees it after closing. Not NULL. */
FILE *text_stream_open(char **text_out, size_t *bytes_out);

/* Formatted text; the caller frees it. */
char *text_format(const char *format, va_list args);
/* char *text: what follows `format` in the arguments, formatted by it. */
#define TEXT_OF_ARGS(text, format)                                             \
    char *text = NULL;                                                         \
    va_list text##_args;                                                       \
    va_start(text##_args, format);                                             \
    text = text_format(format, text##_args);                                   \
    va_end(text##_args)
