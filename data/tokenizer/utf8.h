/* utf8.h - reading and writing single characters of valid UTF-8, and text that
 * may not be valid. */
#ifndef ZD_DATA_TOKENIZER_UTF8_H
#define ZD_DATA_TOKENIZER_UTF8_H

#include "base/file/json.h"

#include <stddef.h>
#include <stdint.h>

/* The character at `p`, which must be the start of a whole, valid one. */
static inline uint32_t utf8_read(const unsigned char *p, unsigned *bytes_out)
{
    if (p[0] < 0x80) {
        *bytes_out = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *bytes_out = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *bytes_out = 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *bytes_out = 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 |
           (p[3] & 0x3fu);
}

/* Where the character that ends before `at` begins; `at` > 0. */
static inline size_t utf8_before(const unsigned char *text, size_t at)
{
    do
        at--;
    while (at > 0 && (text[at] & 0xc0) == 0x80);
    return at;
}

/* Write `c`; returns 1..4 bytes. */
unsigned utf8_write(unsigned char *p, uint32_t c);

/* Text of any bytes as JSON: those that are not UTF-8 become U+FFFD each, and
 * NUL, which many readers refuse, too unless `has_nul`. New reference. */
json_t *utf8_json(const char *text, size_t bytes, bool has_nul);

#endif
