/* text_buffer.h - builds text in a buffer of fixed size; what does not fit is
 * cut off. */
#pragma once

#include <stddef.h>

struct text_buffer {
    char *out;    /* the caller's; terminated by each call */
    size_t bytes; /* of out */
    size_t used;  /* bytes of text so far; >= bytes: cut short */
};

/* An empty buffer of `size` bytes, valid until the end of the enclosing
 * block. */
#define TEXT_BUFFER(size)                                                      \
    {                                                                          \
        .out = (char[size]){""}, .bytes = (size)                               \
    }

void text_buffer_add(struct text_buffer *text, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* `word`, quoted for a shell where needed. */
void text_buffer_add_word(struct text_buffer *text, const char *word);
