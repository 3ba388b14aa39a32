/* nfc.c - NFC as the reference's tables have it (Unicode 9), with
 * utf8proc's mappings.
 *
 * A text is cut in pieces: a run of triggers (code points that NFC of that
 * version may move, change or compose with what is before) and the base in
 * front of it, if it is one that composes. Everything else is copied. utf8proc
 * so only ever sees code points that were there in Unicode 9, and for these
 * Unicode promises that nothing changes; what later versions added is never
 * composed or moved. Reordering is done here: utf8proc's takes quadratic time.
 */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { POINTS_PER_CHARACTER = 4 }; /* longest canonical decomposition */

struct points { /* one piece, decomposed */
    utf8proc_int32_t *data;
    size_t count;
};

static int combining_class(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

static void decompose(
        struct points *points, const unsigned char *text, size_t bytes)
{
    unsigned step;
    for (size_t i = 0; i < bytes; i += step) {
        int boundary = UTF8PROC_BOUNDCLASS_START;
        uint32_t c = utf8_read(text + i, &step);
        points->count += (size_t)utf8proc_decompose_char(
                (utf8proc_int32_t)c, points->data + points->count,
                POINTS_PER_CHARACTER, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
                &boundary);
    }
}

/* Sort marks by class, equals in their order, by counting: `spare` has room for
 * them. */
static void order_marks(
        utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    enum { CLASSES = 256 };
    size_t begin[CLASSES + 1] = {0};
    for (size_t i = 0; i < count; i++)
        begin[combining_class(marks[i]) + 1]++;
    for (int c = 0; c < CLASSES; c++)
        begin[c + 1] += begin[c];
    for (size_t i = 0; i < count; i++)
        spare[begin[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void reorder(struct points *points, utf8proc_int32_t *spare)
{
    for (size_t i = 0; i < points->count;) {
        size_t end = i;
        while (end < points->count && combining_class(points->data[end]) > 0)
            end++;
        if (end > i + 1)
            order_marks(points->data + i, end - i, spare);
        i = end + (end == i);
    }
}

static void normalize_piece(
        const unsigned char *text, size_t bytes, struct byte_buffer *out)
{
    enum { SMALL = 64 };
    utf8proc_int32_t small[2 * SMALL];
    struct points points = {.data = small};
    /* a character has at least 2 bytes here, but for a base of one */
    size_t room = (bytes / 2 + 1) * POINTS_PER_CHARACTER;
    if (room > SMALL)
        points.data = zd_array(2 * room, sizeof *points.data);
    decompose(&points, text, bytes);
    reorder(&points, points.data + (room > SMALL ? room : SMALL));
    size_t count = (size_t)utf8proc_normalize_utf32(
            points.data, (utf8proc_ssize_t)points.count,
            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (size_t i = 0; i < count; i++) {
        unsigned char character[4];
        unsigned length = utf8_write(character, (uint32_t)points.data[i]);
        byte_buffer_append(out, character, length);
    }
    if (points.data != small)
        free(points.data);
}

bool nfc_normalize(
        const uint8_t *classes, const unsigned char *text, size_t bytes,
        struct byte_buffer *out)
{
    size_t copied = 0, base = 0, at = 0;
    bool has_base = false, changed = false;
    unsigned step;
    while (at < bytes) {
        uint8_t class = classes[utf8_read(text + at, &step)];
        if (!(class & UNICODE_NFC_TRIGGER)) {
            has_base = class & UNICODE_NFC_BASE;
            base = at;
            at += step;
            continue;
        }
        size_t begin = has_base ? base : at;
        while (at < bytes &&
               classes[utf8_read(text + at, &step)] & UNICODE_NFC_TRIGGER)
            at += step;
        byte_buffer_append(out, text + copied, begin - copied);
        normalize_piece(text + begin, at - begin, out);
        copied = at;
        has_base = false;
        changed = true;
    }
    if (changed)
        byte_buffer_append(out, text + copied, bytes - copied);
    return changed;
}
