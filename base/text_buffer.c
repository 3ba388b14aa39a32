#include "base/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>

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
