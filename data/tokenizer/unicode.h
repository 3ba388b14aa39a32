/* unicode.h - what Hugging Face tokenizers takes for a letter, a
 * number and any other general category of Unicode, for a space, a word
 * character, and for something that NFC may change.
 *
 * PCRE2 and utf8proc each have tables of their own Unicode version, which
 * differ from the library's and from one distribution to the next. So the
 * tables here were measured on the library itself, code point by code point
 * (unicode_ranges.txt, made into C by unicode_tables.py), and the two libraries
 * are never asked what class a character has. */
#ifndef ZD_DATA_TOKENIZER_UNICODE_H
#define ZD_DATA_TOKENIZER_UNICODE_H

#include <stdint.h>

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

#endif
