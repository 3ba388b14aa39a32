/* text_buffer.h - text that is put together in a buffer of fixed size; what
 * does not fit any more is left out, whole calls or the end of one. */
#pragma once

#include <stddef.h>

struct text_buffer {
    char *out;    /* the caller's; terminated by each call */
    size_t bytes; /* of out */
    size_t used;  /* bytes of text so far; >= bytes: cut short */
};

/* An empty one, of so many bytes that live as long as the block. */
#define TEXT_BUFFER(size)                                                      \
    {                                                                          \
        .out = (char[size]){""}, .bytes = (size)                               \
    }

void text_buffer_add(struct text_buffer *text, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* `word` as a shell reads it: as it is, or in quotes. */
void text_buffer_add_word(struct text_buffer *text, const char *word);
