#include "data/tokenizer/unicode.h"

#include <stdlib.h>

static void mark(
        uint8_t *classes, const struct unicode_range *ranges, int count,
        enum unicode_class class)
{
    for (int r = 0; r < count; r++)
        for (uint32_t c = ranges[r].begin; c <= ranges[r].end; c++)
            classes[c] |= (uint8_t) class;
}

uint8_t *unicode_classes_create(void)
{
    enum { HANGUL_FIRST = 0xac00, HANGUL_LAST = 0xd7a3, TRAILING = 28 };
    uint8_t *classes = calloc(UNICODE_POINTS, 1);
    if (!classes)
        return NULL;
    mark(classes, unicode_letters, unicode_letters_count, UNICODE_LETTER);
    mark(classes, unicode_numbers, unicode_numbers_count, UNICODE_NUMBER);
    mark(classes, unicode_spaces, unicode_spaces_count, UNICODE_SPACE);
    mark(classes, unicode_words, unicode_words_count, UNICODE_WORD);
    mark(classes, unicode_nfc_triggers, unicode_nfc_triggers_count,
         UNICODE_NFC_TRIGGER);
    mark(classes, unicode_nfc_bases, unicode_nfc_bases_count, UNICODE_NFC_BASE);
    /* a syllable without a trailing consonant composes with one */
    for (uint32_t c = HANGUL_FIRST; c <= HANGUL_LAST; c += TRAILING)
        classes[c] |= UNICODE_NFC_BASE;
    return classes;
}
