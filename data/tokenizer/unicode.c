#include "data/tokenizer/unicode.h"

#include "base/must.h"

static void mark(
        uint8_t *classes, struct unicode_table table, enum unicode_class class)
{
    for (int r = 0; r < table.count; r++)
        for (uint32_t c = table.ranges[r].begin; c <= table.ranges[r].end; c++)
            classes[c] |= (uint8_t) class;
}

uint8_t *unicode_classes_create(void)
{
    enum { HANGUL_FIRST = 0xac00, HANGUL_LAST = 0xd7a3, TRAILING = 28 };
    uint8_t *classes = zd_array(UNICODE_POINTS, 1);
    mark(classes, unicode_letters, UNICODE_LETTER);
    mark(classes, unicode_numbers, UNICODE_NUMBER);
    mark(classes, unicode_spaces, UNICODE_SPACE);
    mark(classes, unicode_words, UNICODE_WORD);
    mark(classes, unicode_nfc_triggers, UNICODE_NFC_TRIGGER);
    mark(classes, unicode_nfc_bases, UNICODE_NFC_BASE);
    /* a syllable without a trailing consonant composes with one */
    for (uint32_t c = HANGUL_FIRST; c <= HANGUL_LAST; c += TRAILING)
        classes[c] |= UNICODE_NFC_BASE;
    return classes;
}
