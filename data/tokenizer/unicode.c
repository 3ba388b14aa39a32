#include "data/tokenizer/unicode.h"

#include "base/must.h"

#include <string.h>

static int class_of(const char *category)
{
    switch (category[0]) {
    case 'L':
        return UNICODE_LETTER | (category[1] == 'l' ? 0 : UNICODE_UPPER) |
               (strchr("ut", category[1]) ? 0 : UNICODE_LOWER);
    case 'M':
        return UNICODE_UPPER | UNICODE_LOWER;
    case 'N':
        return UNICODE_NUMBER;
    }
    return 0;
}

/* `class` 0: that of each range's category. */
static void mark(
        uint8_t *classes, struct unicode_table table, enum unicode_class class)
{
    for (int r = 0; r < table.count; r++) {
        const struct unicode_range *range = &table.ranges[r];
        int bits = class ? (int)class : class_of(range->category);
        for (uint32_t c = range->begin; bits && c <= range->end; c++)
            classes[c] |= (uint8_t)bits;
    }
}

uint8_t *unicode_classes_create(void)
{
    enum { HANGUL_FIRST = 0xac00, HANGUL_LAST = 0xd7a3, TRAILING = 28 };
    uint8_t *classes = zd_array(UNICODE_POINTS, 1);
    mark(classes, unicode_categories, 0);
    mark(classes, unicode_spaces, UNICODE_SPACE);
    mark(classes, unicode_words, UNICODE_WORD);
    mark(classes, unicode_nfc_triggers, UNICODE_NFC_TRIGGER);
    mark(classes, unicode_nfc_bases, UNICODE_NFC_BASE);
    /* a syllable without a trailing consonant composes with one */
    for (uint32_t c = HANGUL_FIRST; c <= HANGUL_LAST; c += TRAILING)
        classes[c] |= UNICODE_NFC_BASE;
    return classes;
}
