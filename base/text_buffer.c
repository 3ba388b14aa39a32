#include "base/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void text_buffer_add(struct text_buffer *text, const char *format, ...)
{
    va_list args;
    if (text->used >= text->bytes)
        return;
    va_start(args, format);
    int n = vsnprintf(
            text->out + text->used, text->bytes - text->used, format, args);
    va_end(args);
    text->used += n > 0 ? (size_t)n : 0;
}

void text_buffer_add_word(struct text_buffer *text, const char *word)
{
    static const char plain[] =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU"
            "VWXYZ0123456789_@%+=:,./-";
    if (word[0] && strspn(word, plain) == strlen(word)) {
        text_buffer_add(text, "%s", word);
        return;
    }
    text_buffer_add(text, "'");
    while (*word) {
        int length = (int)strcspn(word, "'");
        text_buffer_add(text, "%.*s", length, word);
        word += length;
        if (*word)
            text_buffer_add(text, "'\\''");
        word += *word == '\'';
    }
    text_buffer_add(text, "'");
}
