#include "base/text_stream.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

struct text {
    char **out;
    size_t *bytes_out; /* or NULL */
    size_t used, room;
};

static void make_room(struct text *text, size_t bytes)
{
    while (text->room < bytes)
        text->room *= 2;
    *text->out = zd_must(realloc(*text->out, text->room));
}

static ssize_t put(void *ctx, const char *data, size_t bytes)
{
    struct text *text = ctx;
    size_t used = text->used;
    if (used + bytes + 1 > text->room)
        make_room(text, used + bytes + 1);
    memcpy(*text->out + used, data, bytes);
    (*text->out)[used + bytes] = '\0';
    text->used = used + bytes;
    if (text->bytes_out)
        *text->bytes_out = text->used;
    return (ssize_t)bytes;
}

static int end(void *ctx)
{
    free(ctx);
    return 0;
}

FILE *text_stream_open(char **text_out, size_t *bytes_out)
{
    struct text *text = zd_must(malloc(sizeof *text));
    *text = (struct text){text_out, bytes_out, .room = 256};
    *text_out = zd_must(calloc(1, text->room));
    if (bytes_out)
        *bytes_out = 0;
    return zd_must(fopencookie(
            text, "w", (cookie_io_functions_t){.write = put, .close = end}));
}

char *text_format(const char *format, va_list args)
{
    char *text = NULL;
    return zd_must(vasprintf(&text, format, args) < 0 ? NULL : text);
}
