#include "data/tokenizer/utf8.h"

#include "base/must.h"
#include "data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the valid character at p, 0 when it is none (Unicode 15.0, table
 * 3-7: no overlong forms, no surrogates, nothing above U+10FFFF). */
static size_t valid_character(const unsigned char *p, size_t left)
{
    unsigned char lowest = 0x80, highest = 0xbf;
    size_t bytes;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    bytes = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (left < bytes)
        return 0;
    if (p[0] == 0xe0)
        lowest = 0xa0;
    else if (p[0] == 0xed)
        highest = 0x9f;
    else if (p[0] == 0xf0)
        lowest = 0x90;
    else if (p[0] == 0xf4)
        highest = 0x8f;
    if (p[1] < lowest || p[1] > highest)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
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
        size_t step = valid_character(p + at, bytes - at);
        if (step == 0)
            return at;
        at += step;
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
