#include "data/tokenizer/utf8.h"

#include "base/must.h"
#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

unsigned utf8_write(unsigned char *p, uint32_t c)
{
    return (unsigned)utf8proc_encode_char((utf8proc_int32_t)c, p);
}

size_t utf8_valid_prefix(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;
    while (at < bytes) {
        uint64_t eight;
        while (bytes - at >= sizeof eight) { /* eight ASCII bytes at once */
            memcpy(&eight, p + at, sizeof eight);
            if (eight & 0x8080808080808080u)
                break;
            at += sizeof eight;
        }
        if (at == bytes)
            break;
        utf8proc_int32_t c;
        utf8proc_ssize_t step = utf8proc_iterate(
                p + at, bytes - at < 4 ? (utf8proc_ssize_t)(bytes - at) : 4,
                &c);
        if (step <= 0)
            return at;
        at += (size_t)step;
    }
    return bytes;
}

json_t *utf8_json(const char *text, size_t bytes, bool has_nul)
{
    char *clean = zd_array(3 * bytes + 1, 1);
    size_t used = 0;
    for (size_t at = 0; at < bytes; at++) {
        size_t most = has_nul ? bytes - at : strnlen(text + at, bytes - at);
        size_t valid = utf8_valid_prefix(text + at, most);
        memcpy(clean + used, text + at, valid);
        used += valid;
        at += valid;
        if (at < bytes)
            used += (size_t)sprintf(clean + used, "\xef\xbf\xbd");
    }
    json_t *json = json_stringn(clean, used);
    free(clean);
    return json;
}

/* --- classes of characters ----------------------------------------------- */

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
    ZD_EACH(range, table.ranges, table.count) {
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
