/* watch.c - marks in text, and how a rendering depends on what they stand for.
 */
#include "data/jinja/internal.h"

#include "data/tokenizer/utf8.h"

enum { DIGITS = 15 };

void jinja_write_mark(size_t word, char out[JINJA_MARK_BYTES])
{
    const uint32_t characters[] = {
            (uint32_t)(0xf0000 + (word >> DIGITS)),
            (uint32_t)(0x100000 + (word & ((1u << DIGITS) - 1)))};
    for (int i = 0; i < JINJA_MARK_BYTES; i++) {
        uint32_t bits = characters[i / 4] >> (18 - 6 * (i % 4));
        out[i] = (char)(i % 4 ? 0x80 | (bits & 0x3f) : 0xf0 | bits);
    }
}

bool jinja_is_mark(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    return bytes >= JINJA_MARK_BYTES && at[0] == 0xf3 && at[1] >= 0xb0 &&
           at[4] == 0xf4 && at[5] < 0x90;
}

size_t jinja_mark_word(const char *text)
{
    unsigned step;
    const unsigned char *at = (const unsigned char *)text;
    return (size_t)(utf8_read(at, &step) - 0xf0000) << DIGITS |
           (size_t)(utf8_read(at + 4, &step) - 0x100000);
}

const char *jinja_find_mark(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while ((text = memchr(text, 0xf3, (size_t)(end - text))) &&
           !jinja_is_mark(text, (size_t)(end - text)))
        text++;
    return text;
}

void jinja_note_look(
        struct jinja_watch *watch, struct value text, const struct value *part)
{
    if (text.kind != STRING || text.bytes == 0 || watch->depends ||
        !jinja_find_mark(text.text, text.bytes))
        return;
    if (!part || part->bytes == 0 || part->bytes > JINJA_PART_BYTES ||
        jinja_find_mark(part->text, part->bytes)) {
        watch->depends = true;
        return;
    }
    for (int i = 0; i < watch->part_count; i++)
        if (watch->parts[i].bytes == part->bytes &&
            memcmp(watch->parts[i].text, part->text, part->bytes) == 0)
            return;
    watch->depends = watch->part_count == JINJA_PARTS_MAX;
    if (watch->depends)
        return;
    struct jinja_part *kept = &watch->parts[watch->part_count++];
    kept->bytes = part->bytes;
    memcpy(kept->text, part->text, part->bytes);
}

void jinja_note_quotes(
        struct jinja_watch *watch, struct value text, bool is_json)
{
    const char *at = text.text, *end = at + text.bytes;
    for (; (at = jinja_find_mark(at, (size_t)(end - at)));
         at += JINJA_MARK_BYTES) {
        size_t word = jinja_mark_word(at);
        watch->depends |= !is_json || word >= watch->word_count;
        if (!watch->depends)
            watch->is_quoted[word] = true;
    }
}

/* Would a part be found in text that has the word where it is not found in the
 * same with the mark? Yes too where that depends on what is beside the word. */
static bool touches(const struct jinja_part *part, const char *word, size_t n)
{
    const char *end = word + n;
    for (const char *at = word;
         (at = memchr(at, part->text[0], (size_t)(end - at))); at++) {
        size_t left = (size_t)(end - at);
        if (memcmp(at, part->text, left < part->bytes ? left : part->bytes) ==
            0)
            return true;
    }
    for (size_t k = 1; k < part->bytes; k++)
        if (part->text[k] == word[0] &&
            memcmp(part->text + k, word,
                   part->bytes - k < n ? part->bytes - k : n) == 0)
            return true;
    return false;
}

bool jinja_watch_allows(
        const struct jinja_watch *watch, size_t index, const char *word,
        size_t bytes)
{
    for (int i = 0; i < watch->part_count; i++)
        if (touches(&watch->parts[i], word, bytes))
            return false;
    for (size_t i = 0; watch->is_quoted[index] && i < bytes; i++)
        if ((unsigned char)word[i] < ' ' || word[i] == '"' || word[i] == '\\')
            return false;
    return !watch->depends;
}
