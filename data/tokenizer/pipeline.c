/* pipeline.c - normalizer, pre_tokenizer, post_processor and decoder
 * of a tokenizer.json. What is not supported is refused by name: a text cut in
 * another way would train a model on ids that no other program makes. */
#include "data/tokenizer/tokenizer_internal.h"

#include "base/must.h"
#include "base/words.h"
#include "data/tokenizer/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

/* ---- NFC as the reference's tables have it (Unicode 9), with utf8proc's
 * mappings
 *
 * A text is cut in pieces: a run of triggers (code points that NFC of that
 * version may move, change or compose with what is before) and the base in
 * front of it, if it is one that composes. Everything else is copied. utf8proc
 * so only ever sees code points that were there in Unicode 9, and for these
 * Unicode promises that nothing changes; what later versions added is never
 * composed or moved. Reordering is done here: utf8proc's takes quadratic time.
 */

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

/* ---- the parts of the file ---- */

static const char *type_of(const json_t *part)
{
    const char *type = json_string_at(part, "type");
    return type ? type : json_is_absent(part) ? "null" : "(none)";
}

static bool is_type(const json_t *part, const char *type)
{
    return strcmp(type_of(part), type) == 0;
}

static enum zd_status refuse(const char *key, const char *what)
{
    return ZD_BAD("E0403", "%s %.200s is not supported", key, what);
}

/* ---- normalizer ---- */

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* A pattern {"String": " "}. */
static bool is_space(const json_t *part)
{
    const json_t *pattern = json_object_get(part, "pattern");
    return is_text(json_object_get(pattern, "String"), " ");
}

static enum zd_status load_normalizer(struct tokenizer *t, const json_t *part)
{
    if (json_is_absent(part))
        return ZD_OK;
    if (is_type(part, "NFC")) {
        t->nfc = true;
    } else if (is_type(part, "Replace")) {
        if (!is_space(part) ||
            !is_text(json_object_get(part, "content"), META_SPACE))
            return refuse(
                    "normalizer", "Replace of anything but \" \" by "
                                  "\"" META_SPACE "\"");
        t->table.is_fallback = true;
    } else if (is_type(part, "Prepend")) {
        if (!is_text(json_object_get(part, "prepend"), META_SPACE) ||
            t->prefixes != PREFIX_NONE)
            return refuse(
                    "normalizer",
                    "Prepend of anything but one \"" META_SPACE "\"");
        t->prefixes = PREFIX_ALWAYS;
    } else {
        return refuse("normalizer", type_of(part));
    }
    return ZD_OK;
}

/* One or a Sequence. */
static enum zd_status load_normalizers(struct tokenizer *t, const json_t *part)
{
    const json_t *parts = json_object_get(part, "normalizers");
    if (!is_type(part, "Sequence"))
        ZD_TRY(load_normalizer(t, part));
    else
        JSON_EACH(inner, parts)
            ZD_TRY(load_normalizer(t, inner));
    bool is_fallback = t->table.is_fallback;
    if (t->prefixes != PREFIX_NONE && !is_fallback)
        return refuse("normalizer", "Prepend without Replace");
    if (t->nfc && is_fallback)
        return refuse("normalizer", "Sequence of NFC and Replace");
    return ZD_OK;
}

void meta_replace(
        const unsigned char *text, size_t bytes, bool prefixes,
        struct byte_buffer *out)
{
    if (prefixes)
        byte_buffer_append(out, META_SPACE, META_BYTES);
    for (size_t at = 0; at < bytes;) {
        const unsigned char *space = memchr(text + at, ' ', bytes - at);
        size_t end = space ? (size_t)(space - text) : bytes;
        byte_buffer_append(out, text + at, end - at);
        if (space)
            byte_buffer_append(out, META_SPACE, META_BYTES);
        at = end + (space != NULL);
    }
}

bool tokenizer_normalize(
        const struct tokenizer *t, const unsigned char *text, size_t bytes,
        bool begins, struct byte_buffer *out)
{
    if (t->nfc)
        return nfc_normalize(t->classes, text, bytes, out);
    if (!t->table.is_fallback || t->is_metaspace)
        return false;
    meta_replace(text, bytes, begins && t->prefixes == PREFIX_ALWAYS, out);
    return true;
}

/* ---- pre_tokenizer ---- */

/* The pattern of a Split, borrowed from the JSON. */
static enum zd_status split_pattern(const json_t *part, const char **out)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *behavior = json_object_get(part, "behavior");
    const json_t *invert = json_object_get(part, "invert");
    if (!json_is_string(regex))
        return refuse("pre_tokenizer", "Split without a Regex");
    if (strlen(json_string_value(regex)) != json_string_length(regex))
        return refuse("pre_tokenizer", "Split with a zero byte");
    *out = json_string_value(regex);
    /* to remove what does not match is the same where all matches */
    bool is_same = json_is_true(invert) && is_text(behavior, "Removed") &&
                   split_kind_of(*out) != SPLIT_PATTERN;
    if (is_same ||
        (is_text(behavior, "Isolated") && (!invert || json_is_false(invert))))
        return ZD_OK;
    return refuse("pre_tokenizer", "Split with its behavior and invert");
}

static enum zd_status load_digits(struct tokenizer *t, const json_t *part)
{
    const json_t *single = json_object_get(part, "individual_digits");
    if (!json_is_boolean(single))
        return refuse("pre_tokenizer", "Digits without individual_digits");
    splitter_push(
            &t->splitter,
            json_is_true(single) ? SPLIT_EACH_DIGIT : SPLIT_DIGITS);
    return ZD_OK;
}

/* `is_alone`: not one of a Sequence of several. */
static enum zd_status load_byte_level(
        struct tokenizer *t, const json_t *part, bool is_alone)
{
    const json_t *prefix = json_object_get(part, "add_prefix_space");
    const json_t *regex = json_object_get(part, "use_regex");
    if (!json_is_boolean(prefix) || (regex && !json_is_boolean(regex)))
        return ZD_BAD(
                "E0402",
                "broken tokenizer.json: a ByteLevel pre_tokenizer needs "
                "add_prefix_space, true or false, and may have use_regex");
    t->add_prefix_space = json_is_true(prefix);
    if (t->add_prefix_space && !is_alone)
        return refuse(
                "pre_tokenizer",
                "Sequence with a ByteLevel of add_prefix_space");
    if (!json_is_false(regex))
        splitter_push(&t->splitter, SPLIT_GPT2);
    return ZD_OK;
}

/* Split and Digits, as many as there are, then ByteLevel. */
static enum zd_status load_sequence(struct tokenizer *t, const json_t *sequence)
{
    const json_t *parts = json_object_get(sequence, "pretokenizers");
    size_t count = json_array_size(parts);
    const char *pattern = NULL;
    if (count > SPLIT_STAGES_MAX)
        return refuse("pre_tokenizer", "Sequence of more than 8");
    for (size_t i = 0; i < count; i++) {
        const json_t *part = json_array_get(parts, i);
        if (is_type(part, "ByteLevel"))
            return i + 1 == count
                           ? load_byte_level(t, part, count == 1)
                           : refuse("pre_tokenizer", "ByteLevel before others");
        if (is_type(part, "Digits")) {
            ZD_TRY(load_digits(t, part));
        } else if (is_type(part, "Split")) {
            ZD_TRY(split_pattern(part, &pattern));
            ZD_TRY(splitter_add(&t->splitter, pattern, false));
        } else {
            return refuse("pre_tokenizer", type_of(part));
        }
    }
    return refuse("pre_tokenizer", "Sequence that does not end in ByteLevel");
}

/* Older files have add_prefix_space, true or false, for prepend_scheme. */
static enum zd_status load_metaspace(struct tokenizer *t, const json_t *part)
{
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const json_t *split = json_object_get(part, "split");
    bool has_prefix = !json_is_false(json_object_get(part, "add_prefix_space"));
    if (!is_text(json_object_get(part, "replacement"), META_SPACE))
        return refuse(
                "pre_tokenizer",
                "Metaspace with a replacement but \"" META_SPACE "\"");
    if (t->table.is_fallback || t->nfc)
        return refuse("pre_tokenizer", "Metaspace after a normalizer");
    if (is_text(scheme, "never") || (!scheme && !has_prefix))
        t->prefixes = PREFIX_NONE;
    else if (is_text(scheme, "first"))
        t->prefixes = PREFIX_FIRST;
    else if (is_text(scheme, "always") || !scheme)
        t->prefixes = PREFIX_UNLESS_THERE;
    else
        return refuse("pre_tokenizer", "Metaspace with its prepend_scheme");
    if (split && !json_is_boolean(split))
        return refuse("pre_tokenizer", "Metaspace with its split");
    t->table.is_fallback = t->is_metaspace = true;
    if (!json_is_false(split))
        splitter_push(&t->splitter, SPLIT_META);
    return ZD_OK;
}

static enum zd_status load_pretokenizer(struct tokenizer *t, const json_t *part)
{
    if (is_type(part, "Metaspace"))
        return load_metaspace(t, part);
    if (t->table.is_fallback) {
        /* a split at spaces finds none: the normalizer took them */
        if (json_is_absent(part) || (is_type(part, "Split") && is_space(part)))
            return ZD_OK;
        return refuse("pre_tokenizer after Replace:", type_of(part));
    }
    if (is_type(part, "ByteLevel"))
        return load_byte_level(t, part, true);
    if (is_type(part, "Sequence"))
        return load_sequence(t, part);
    return refuse("pre_tokenizer", type_of(part));
}

/* ---- post_processor ---- */

static enum zd_status add_around(
        const struct tokenizer *t, const json_t *id, const char *name,
        struct token_vector *around)
{
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= t->vocab.ids ||
        !t->vocab.tokens[value].present)
        return ZD_BAD(
                "E0407", "post_processor: an id of `%.200s` is not a token",
                name);
    token_vector_push(around, (int32_t)value);
    return ZD_OK;
}

/* `single`: special tokens, the text, special tokens. */
static enum zd_status load_template(struct tokenizer *t, const json_t *part)
{
    const json_t *single = json_object_get(part, "single");
    const json_t *tokens = json_object_get(part, "special_tokens");
    bool has_text = false;
    if (!json_is_array(single))
        return refuse("post_processor", "TemplateProcessing without a list");
    JSON_EACH(piece, single) {
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *text = json_object_get(piece, "Sequence");
        const char *name = json_string_at(special, "id");
        if (json_is_object(text)) {
            const char *which = json_string_at(text, "id");
            if (has_text || !which || strcmp(which, "A") != 0)
                return refuse(
                        "post_processor",
                        "TemplateProcessing with anything but the text once");
            has_text = true;
            continue;
        }
        const json_t *ids = json_object_get(
                name ? json_object_get(tokens, name) : NULL, "ids");
        if (!json_is_array(ids))
            return ZD_BAD(
                    "E0407",
                    "post_processor: special token `%.200s` has no ids",
                    name ? name : "?");
        JSON_EACH(id, ids) {
            ZD_TRY(add_around(
                    t, id, name,
                    has_text ? &t->facts.suffix : &t->facts.prefix));
        }
    }
    if (!has_text)
        return refuse("post_processor", "TemplateProcessing without the text");
    return ZD_OK;
}

/* One that puts tokens around the text, or ByteLevel, which moves offsets
 * alone. */
static enum zd_status load_processor(struct tokenizer *t, const json_t *part)
{
    if (is_type(part, "TemplateProcessing"))
        return load_template(t, part);
    if (!is_type(part, "ByteLevel"))
        return refuse("post_processor", type_of(part));
    t->trim_offsets |= !json_is_false(json_object_get(part, "trim_offsets"));
    return ZD_OK;
}

enum zd_status tokenizer_load_around(struct tokenizer *t, const json_t *root)
{
    const json_t *part = json_object_get(root, "post_processor");
    const json_t *processors = json_object_get(part, "processors");
    bool has_one = false;
    if (json_is_absent(part))
        return ZD_OK;
    if (!is_type(part, "Sequence"))
        return load_processor(t, part);
    JSON_EACH(inner, processors) {
        bool is_one = !is_type(inner, "ByteLevel");
        if (has_one && is_one)
            return refuse("post_processor", "Sequence of two templates");
        ZD_TRY(load_processor(t, inner));
        has_one |= is_one;
    }
    return ZD_OK;
}

/* ---- the rest ---- */

/* The decoder of a tokenizer with byte fallback, one or a Sequence: what its
 * tokens spell is known. */
static enum zd_status check_decoder(const json_t *part)
{
    static const char known[] = "Replace ByteFallback Fuse Strip Metaspace";
    const json_t *parts = json_object_get(part, "decoders");
    if (words_have(known, " ", type_of(part)))
        return ZD_OK;
    if (!is_type(part, "Sequence"))
        return refuse("decoder", type_of(part));
    JSON_EACH(inner, parts)
        ZD_TRY(check_decoder(inner));
    return ZD_OK;
}

static enum zd_status check_others(struct tokenizer *t, const json_t *root)
{
    static const char *const keys[] = {"truncation", "padding"};
    const json_t *decoder = json_object_get(root, "decoder");
    if (t->table.is_fallback)
        ZD_TRY(check_decoder(decoder));
    else if (!is_type(decoder, "ByteLevel"))
        return refuse("decoder", type_of(decoder));
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        if (json_is_absent(json_object_get(root, keys[k])))
            continue;
        refuse(keys[k], "(not null)");
        return zd_fail_help("set %s to null in the file", keys[k]);
    }
    return ZD_OK;
}

enum zd_status tokenizer_load_pipeline(struct tokenizer *t, const json_t *root)
{
    ZD_TRY(load_normalizers(t, json_object_get(root, "normalizer")));
    ZD_TRY(load_pretokenizer(t, json_object_get(root, "pre_tokenizer")));
    return check_others(t, root);
}
