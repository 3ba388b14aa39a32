#include "base/printable.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* The length of a character by its first byte; 0: not a first byte. */
static size_t length_by(unsigned char first)
{
    return first < 0x80                    ? 1
           : first >= 0xc2 && first < 0xe0 ? 2
           : first >= 0xe0 && first < 0xf0 ? 3
           : first >= 0xf0 && first < 0xf5 ? 4
                                           : 0;
}

/* The character at `text` in *code_out; returns its bytes; 0: not UTF-8. */
static size_t decode(const char *text, size_t bytes, uint32_t *code_out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    size_t length = length_by(at[0]);
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7fu >> length);
    if (!length || length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    if (code < least[length] || code > 0x10ffff || (code & ~0x7ffu) == 0xd800)
        return 0;
    *code_out = code;
    return length;
}

static bool is_mark_of_direction(uint32_t code)
{
    return code == 0x200e || code == 0x200f || code == 0x061c ||
           (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

size_t printable_one(const char *text, size_t bytes, char out[PRINTABLE_MAX])
{
    uint32_t code;
    size_t used = decode(text, bytes, &code);
    if (!used || code < 0x20 || code == 0x7f) {
        snprintf(out, PRINTABLE_MAX, "\\x%02x", (unsigned char)text[0]);
        return 1;
    }
    if ((code >= 0x80 && code < 0xa0) || is_mark_of_direction(code))
        snprintf(out, PRINTABLE_MAX, "\\u{%x}", (unsigned)code);
    else
        snprintf(out, PRINTABLE_MAX, "%.*s", (int)used, text);
    return used;
}

bool printable_is(const char *text, size_t bytes)
{
    char one[PRINTABLE_MAX];
    size_t used = printable_one(text, bytes, one);
    return strlen(one) == used && memcmp(one, text, used) == 0;
}

void printable_copy(
        char *out, size_t out_bytes, const char *text, size_t bytes,
        const char *keep)
{
    size_t used = 0;
    for (size_t at = 0; at < bytes;) {
        char one[PRINTABLE_MAX] = {text[at]};
        at += text[at] && strchr(keep, text[at])
                      ? 1
                      : printable_one(text + at, bytes - at, one);
        size_t length = strlen(one);
        if (used + length >= out_bytes)
            break;
        memcpy(out + used, one, length);
        used += length;
    }
    out[used] = '\0';
}

size_t printable_tail(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        unsigned char c = (unsigned char)text[bytes - back];
        if ((c & 0xc0) != 0x80)
            return length_by(c) > back ? back : 0;
    }
    return 0;
}

struct printable printable_to(FILE *out)
{
    return (struct printable){
            .out = out, .is_terminal = isatty(fileno(out)) == 1};
}

static void put_escaped(FILE *out, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        char one[PRINTABLE_MAX] = {text[at]};
        at += text[at] == '\n' || text[at] == '\t'
                      ? 1
                      : printable_one(text + at, bytes - at, one);
        fputs(one, out);
    }
}

void printable_put(struct printable *to, const char *text, size_t bytes)
{
    if (!to->is_terminal) {
        fwrite(text, 1, bytes, to->out);
        return;
    }
    /* the character that the last piece has left is completed first */
    while (to->held_bytes && bytes) {
        to->held[to->held_bytes++] = *text++;
        bytes--;
        if (printable_tail(to->held, to->held_bytes) == to->held_bytes)
            continue;
        put_escaped(to->out, to->held, to->held_bytes);
        to->held_bytes = 0;
    }
    size_t tail = printable_tail(text, bytes);
    put_escaped(to->out, text, bytes - tail);
    if (tail) {
        memcpy(to->held, text + bytes - tail, tail);
        to->held_bytes = tail;
    }
}

void printable_end(struct printable *to)
{
    put_escaped(to->out, to->held, to->held_bytes);
    to->held_bytes = 0;
}
