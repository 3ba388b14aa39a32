/* utf8.h - reading and writing single characters of valid UTF-8, text that may
 * not be valid, and the classes of characters. */
#pragma once

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

/* --- classes --- */

/* What Hugging Face tokenizers takes for a letter, a number and any other
 * general category of Unicode, for a space, a word character, and for something
 * that NFC may change.
 *
 * PCRE2 and utf8proc each have tables of their own Unicode version, which
 * differ from the library's and from one distribution to the next. So the
 * tables here were measured on the library itself, code point by code point
 * (unicode_ranges.txt, made into C by unicode_tables.py), and the two libraries
 * are never asked what class a character has. */

enum { UNICODE_POINTS = 0x110000 };

struct unicode_range {
    uint32_t begin, end; /* both included */
    char category[3];    /* "Lu"; of the other tables "" */
};
struct unicode_table {
    const struct unicode_range *ranges; /* ascending */
    int count;
};

extern const struct unicode_table unicode_categories, unicode_spaces,
        unicode_words, unicode_nfc_triggers, unicode_nfc_bases;

enum unicode_class {
    UNICODE_LETTER = 1,       /* \p{L} */
    UNICODE_NUMBER = 2,       /* \p{N} */
    UNICODE_SPACE = 4,        /* \s */
    UNICODE_WORD = 8,         /* stops a single_word token */
    UNICODE_NFC_TRIGGER = 16, /* NFC may move, change or compose it away */
    UNICODE_NFC_BASE = 32,    /* first of a composition, or decomposes */
    UNICODE_UPPER = 64,       /* a letter but \p{Ll}, or a mark */
    UNICODE_LOWER = 128,      /* a letter but \p{Lu} and \p{Lt}, or a mark */
};

/* The classes of every code point, one byte each (1.1 MiB, most of it never
 * touched). Free it with free(). */
uint8_t *unicode_classes_create(void);
