/* value.c - makes, searches and iterates over values. */
#include "data/jinja/internal.h"

#include "data/tokenizer/utf8.h"

#include <utf8proc.h>

/* --- text ----------------------------------------------------------------- */

uint32_t jinja_character(struct value text, size_t at, unsigned *bytes_out)
{
    return utf8_read((const unsigned char *)text.text + at, bytes_out);
}

bool jinja_is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
    return c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Is the character of `bytes` bytes at `at` one to strip? */
static bool is_in_set(
        struct value text, size_t at, unsigned bytes, struct value set)
{
    unsigned length;
    if (set.kind != STRING)
        return jinja_is_space(jinja_character(text, at, &length));
    for (size_t i = 0; i < set.bytes; i += length) {
        jinja_character(set, i, &length);
        if (length == bytes && memcmp(set.text + i, text.text + at, bytes) == 0)
            return true;
    }
    return false;
}

size_t jinja_blanks(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t n = 0;
    unsigned step;
    while (n < bytes && jinja_is_space(utf8_read(at + n, &step)))
        n += step;
    return n;
}

struct value jinja_stripped(
        struct jinja *j, struct value text, struct value set, bool left,
        bool right)
{
    size_t begin = 0, end = text.bytes;
    unsigned bytes;
    size_t cost = set.kind == STRING ? set.bytes : 1;
    if (set.kind == STRING && jinja_charge(j, cost / 16, 0) &&
        jinja_blanks(set.text, set.bytes) < set.bytes) {
        jinja_looks(j, text, NULL);
        jinja_looks(j, set, NULL);
    }
    while (left && begin < end && jinja_charge(j, 1 + cost / 16, 0)) {
        jinja_character(text, begin, &bytes);
        if (!is_in_set(text, begin, bytes, set))
            break;
        begin += bytes;
    }
    while (right && begin < end && jinja_charge(j, 1 + cost / 16, 0)) {
        size_t at = utf8_before((const unsigned char *)text.text, end);
        if (!is_in_set(text, at, (unsigned)(end - at), set))
            break;
        end = at;
    }
    return jinja_part(text, begin, end);
}

struct value jinja_in_case(
        struct jinja *j, struct value text, enum letter_case to)
{
    size_t mark = jinja_capture(j);
    unsigned length;
    bool begins = true; /* of the text or, with TITLE, a word */
    jinja_looks(j, text, NULL);
    for (size_t i = 0; i < text.bytes && jinja_charge(j, 1, 0); i += length) {
        utf8proc_int32_t c =
                (utf8proc_int32_t)jinja_character(text, i, &length);
        enum letter_case way = to < CAPITAL    ? to
                               : !begins       ? LOWER
                               : to == CAPITAL ? CAPITAL
                                               : UPPER;
        begins = to == TITLE && (memchr("-({[<", text.text[i], 5) ||
                                 jinja_is_space((uint32_t)c));
        unsigned char bytes[4];
        if (c == 0xdf && way != LOWER) { /* the sharp s */
            jinja_write(j, way == UPPER ? "SS" : "Ss", 2);
            continue;
        }
        c = way == LOWER   ? utf8proc_tolower(c)
            : way == UPPER ? utf8proc_toupper(c)
                           : utf8proc_totitle(c);
        jinja_write(j, (const char *)bytes, utf8_write(bytes, (uint32_t)c));
    }
    struct value made = jinja_captured(j, mark);
    made.is_safe = text.is_safe;
    return made;
}

struct value jinja_replaced(
        struct jinja *j, struct value text, struct value from, struct value to,
        int64_t most)
{
    size_t done = 0, at = 0, mark = jinja_capture(j);
    unsigned bytes = 0;
    jinja_looks(j, text, &from);
    jinja_looks(j, from, NULL);
    for (; most != 0 && is_ok(j); most--) {
        const char *found = from.bytes ? memmem(text.text + at, text.bytes - at,
                                                from.text, from.bytes)
                                       : text.text + at;
        if (!found || !jinja_charge(j, 1, 0))
            break;
        at = (size_t)(found - text.text);
        jinja_write(j, text.text + done, at - done);
        jinja_write(j, to.text, to.bytes);
        done = at += from.bytes;
        if (from.bytes)
            continue;
        if (at >= text.bytes) /* "" occurs once more at the end */
            break;
        jinja_character(text, at, &bytes);
        jinja_write(j, text.text + at, bytes);
        done = at += bytes;
    }
    jinja_write(j, text.text + done, text.bytes - done);
    return jinja_captured(j, mark);
}

struct value jinja_join_items(
        struct jinja *j, struct value separator, const struct items *items,
        bool must_be_text)
{
    size_t mark = jinja_capture(j);
    for (size_t i = 0; i < items->count && is_ok(j); i++) {
        struct value item = items->at[i];
        if (i > 0)
            jinja_write(j, separator.text, separator.bytes);
        if (must_be_text && item.kind != STRING)
            jinja_fail(
                    j, "sequence item %zu: expected str instance, %s found", i,
                    jinja_type(item));
        jinja_write_str(j, item);
    }
    return jinja_captured(j, mark);
}

/* --- made ----------------------------------------------------------------- */

struct value jinja_copy(struct jinja *j, const char *text, size_t bytes)
{
    char *copy = jinja_extend(j, text, 0, bytes);
    if (!copy)
        return jinja_none();
    memcpy(copy, text, bytes);
    return jinja_slice(copy, bytes);
}

static bool reserve_items(struct jinja *j, struct items *items, size_t capacity)
{
    if (!jinja_affords(j, capacity, sizeof *items->at))
        return false;
    struct value *at = jinja_alloc(j, capacity * sizeof *at);
    if (items->count)
        memcpy(at, items->at, items->count * sizeof *at);
    items->at = at;
    items->capacity = capacity;
    return true;
}

struct value jinja_list(struct jinja *j, enum kind kind, size_t capacity)
{
    struct items *items = jinja_alloc(j, sizeof *items);
    *items = (struct items){0};
    if (capacity)
        reserve_items(j, items, capacity);
    return (struct value){.kind = (uint8_t)kind, .items = items};
}

void jinja_append(struct jinja *j, struct value list, struct value item)
{
    struct items *items = list.items;
    if (!jinja_charge(j, 1, 0))
        return;
    if (items->count < items->capacity ||
        reserve_items(j, items, items->count ? 2 * items->count : 4))
        items->at[items->count++] = item;
}

const struct value *jinja_find(
        struct jinja *j, struct value mapping, struct value key)
{
    const struct items *items = mapping.items;
    jinja_charge(j, (items->count / 2 + key.bytes / 8) / 8, 0);
    jinja_looks(j, key, NULL);
    if (is_one_of(key, KIND(LIST) | KIND(DICT)))
        jinja_fail(j, "unhashable type: '%s'", jinja_type(key));
    for (size_t i = 0; i < items->count && is_ok(j); i += 2) {
        struct value other = items->at[i];
        if (key.kind == STRING
                    ? other.kind == STRING && other.bytes == key.bytes &&
                              memcmp(other.text, key.text, key.bytes) == 0
                    : jinja_equal(j, other, key))
            return &items->at[i + 1];
    }
    return NULL;
}

void jinja_put(
        struct jinja *j, struct value mapping, struct value key,
        struct value value)
{
    struct value *found = (struct value *)jinja_find(j, mapping, key);
    if (found) {
        *found = value;
        return;
    }
    jinja_append(j, mapping, key);
    jinja_append(j, mapping, value);
}

/* Borrows the texts. */
struct value jinja_from_json(struct jinja *j, const json_t *json)
{
    struct value made = jinja_none();
    if (!jinja_enter(j))
        return made;
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_NULL:
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        made = jinja_truth(json_is_true(json));
        break;
    case JSON_INTEGER:
        made = jinja_integer(json_integer_value(json));
        break;
    case JSON_REAL:
        made = jinja_real(json_real_value(json));
        break;
    case JSON_STRING:
        made = jinja_slice(json_string_value(json), json_string_length(json));
        break;
    case JSON_ARRAY:
        made = jinja_list(j, LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json) && is_ok(j); i++)
            jinja_append(j, made, jinja_from_json(j, json_array_get(json, i)));
        break;
    case JSON_OBJECT: {
        made = jinja_list(j, DICT, 2 * json_object_size(json));
        void *at = json_object_iter((json_t *)json);
        for (; at && is_ok(j); at = json_object_iter_next((json_t *)json, at)) {
            jinja_append(
                    j, made,
                    jinja_slice(
                            json_object_iter_key(at),
                            json_object_iter_key_len(at)));
            jinja_append(
                    j, made, jinja_from_json(j, json_object_iter_value(at)));
        }
        break;
    }
    }
    jinja_leave(j);
    return made;
}

const char *jinja_type(struct value value)
{
    static const char *const names[] = {
            "Undefined",  "Undefined", "NoneType",  "bool",        "int",
            "float",      "str",       "list",      "tuple",       "generator",
            "dict_items", "dict",      "Namespace", "LoopContext", "Macro",
            "method",     "function"}; /* by kind */
    return value.kind == STRING && value.is_safe ? "Markup" : names[value.kind];
}

bool jinja_is_true(struct value value)
{
    if (value.kind == INT)
        return value.integer != 0;
    if (value.kind == FLOAT)
        return value.real != 0;
    if (value.kind == STRING)
        return value.bytes > 0;
    if (is_one_of(value, KIND(LIST) | KIND(TUPLE) | KIND(VIEW) | KIND(DICT)))
        return value.items->count > 0;
    return value.kind == BOOL ? value.truth : value.kind > NONE;
}

void jinja_use_undefined(struct jinja *j, struct value value)
{
    const char *type =
            jinja_type((struct value){.kind = value.owner, .is_safe = false});
    int bytes = (int)(value.bytes > 80 ? 80 : value.bytes);
    if (value.owner == MACRO)
        jinja_fail(j, "parameter '%.*s' was not provided", bytes, value.text);
    else if (value.owner == UNDEFINED) /* the text says what is undefined */
        jinja_fail(j, "%.*s", bytes, value.text);
    else if (value.owner)
        jinja_fail(
                j, "'%s object' has no attribute '%.*s'", type, bytes,
                value.text ? value.text : "");
    else
        jinja_fail(j, "'%.*s' is undefined", bytes, value.text);
}

/* --- gone through --------------------------------------------------------- */

size_t jinja_characters(struct value text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++)
        count += (text.text[i] & 0xc0) != 0x80;
    return count;
}

size_t jinja_past_characters(struct value text, size_t at, size_t count)
{
    while (count > 0 && at < text.bytes)
        count -= ++at == text.bytes || (text.text[at] & 0xc0) != 0x80;
    return at;
}

static struct value characters(struct jinja *j, struct value text)
{
    struct value list = jinja_list(j, LIST, jinja_characters(text));
    jinja_looks(j, text, NULL);
    for (size_t at = 0; at < text.bytes && is_ok(j);) {
        size_t end = jinja_past_characters(text, at, 1);
        jinja_append(j, list, jinja_part(text, at, end));
        at = end;
    }
    return list;
}

struct value jinja_view(
        struct jinja *j, enum kind kind, struct value dict, bool has_keys,
        bool has_values)
{
    struct value made = jinja_list(j, kind, dict.items->count / 2);
    for (size_t i = 0; i < dict.items->count && is_ok(j); i += 2) {
        const struct value *pair = &dict.items->at[i];
        struct value part = pair[!has_keys];
        if (has_keys && has_values) {
            part = jinja_list(j, TUPLE, 2);
            jinja_append(j, part, pair[0]);
            jinja_append(j, part, pair[1]);
        }
        jinja_append(j, made, part);
    }
    return made;
}

bool jinja_iterate(struct jinja *j, struct value value, struct items *out)
{
    *out = (struct items){0};
    if (is_one_of(value, SEQUENCES)) {
        if (value.kind != GENERATOR || !value.items->is_used)
            *out = *value.items;
        value.items->is_used = value.kind == GENERATOR;
    } else if (value.kind == STRING) {
        *out = *characters(j, value).items;
    } else if (value.kind == DICT) {
        *out = *jinja_view(j, LIST, value, true, false).items;
    } else if (value.kind > UNDEFINED) {
        jinja_fail(j, "'%s' object is not iterable", jinja_type(value));
    }
    return is_ok(j);
}

size_t jinja_length(struct jinja *j, struct value value)
{
    jinja_looks(j, value, NULL);
    if (value.kind == STRING)
        return jinja_read(j, value.bytes) ? jinja_characters(value) : 0;
    if (value.kind == DICT)
        return value.items->count / 2;
    if (is_one_of(value, KIND(LIST) | KIND(TUPLE) | KIND(VIEW)))
        return value.items->count;
    if (value.kind == LOOP)
        return value.loop->items.count;
    if (value.kind != UNDEFINED)
        jinja_fail(j, "object of type '%s' has no len()", jinja_type(value));
    return 0;
}

/* --- parts ---------------------------------------------------------------- */

static struct value neighbor(struct loop *loop, int64_t at, const char *hint)
{
    return at >= 0 && at < (int64_t)loop->items.count
                   ? loop->items.at[at]
                   : jinja_undefined(jinja_word(hint), UNDEFINED);
}

static struct value loop_attribute(struct loop *loop, struct value name)
{
    int64_t at = (int64_t)loop->at, count = (int64_t)loop->items.count;
    const struct {
        const char *name;
        struct value value;
    } all[] = {
            {"index0", jinja_integer(at)},
            {"index", jinja_integer(at + 1)},
            {"first", jinja_truth(at == 0)},
            {"last", jinja_truth(at + 1 == count)},
            {"length", jinja_integer(count)},
            {"revindex", jinja_integer(count - at)},
            {"revindex0", jinja_integer(count - at - 1)},
            {"previtem", neighbor(loop, at - 1, "there is no previous item")},
            {"nextitem", neighbor(loop, at + 1, "there is no next item")},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (jinja_is_text(name, all[i].name))
            return all[i].value;
    return jinja_undefined(name, LOOP);
}

struct value jinja_attribute(
        struct jinja *j, struct value value, struct value name,
        const struct row *method)
{
    const struct value *found = NULL;
    if (value.kind == UNDEFINED) {
        jinja_use_undefined(j, value);
        return value;
    }
    if (method && is_one_of(value, method->kinds)) {
        struct method *bound = jinja_alloc(j, sizeof *bound);
        *bound = (struct method){method, value};
        return (struct value){.kind = METHOD, .method = bound};
    }
    if (value.kind == LOOP)
        return loop_attribute(value.loop, name);
    if (is_one_of(value, KIND(DICT) | KIND(NAMESPACE)))
        found = jinja_find(j, value, name);
    return found ? *found : jinja_undefined(name, value.kind);
}

/* Converts Python's index for `count` items; false: out of range. */
static bool find_index(struct value key, size_t count, size_t *index_out)
{
    int64_t at = key.kind == BOOL ? key.truth : key.integer;
    at += at < 0 ? (int64_t)count : 0;
    *index_out = (size_t)at;
    return at >= 0 && (uint64_t)at < count;
}

struct value jinja_item(struct jinja *j, struct value value, struct value key)
{
    size_t at;
    const struct value *found;
    jinja_looks(j, key, NULL);
    if (value.kind == UNDEFINED) {
        jinja_use_undefined(j, value);
        return value;
    }
    if (value.kind == DICT && (found = jinja_find(j, value, key)))
        return *found;
    if (key.kind == STRING)
        return jinja_attribute(
                j, value, key, jinja_row(jinja_methods, key.text, key.bytes));
    if (!is_one_of(key, KIND(INT) | KIND(BOOL)))
        return jinja_undefined(jinja_word("[..]"), value.kind);
    if (is_one_of(value, KIND(LIST) | KIND(TUPLE)) &&
        find_index(key, value.items->count, &at))
        return value.items->at[at];
    jinja_looks(j, value, NULL);
    if (value.kind == STRING && jinja_read(j, value.bytes) &&
        find_index(key, jinja_characters(value), &at)) {
        at = jinja_past_characters(value, 0, at);
        return jinja_part(value, at, jinja_past_characters(value, at, 1));
    }
    return jinja_undefined(jinja_word("[index]"), value.kind);
}

/* Clips a slice's from, to and step to `count` items, as Python does. */
static bool clip(
        struct jinja *j, const struct value bounds[3], int64_t count,
        int64_t out[3])
{
    int64_t step = out[2] = integer_or(bounds[2], 1);
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? count - 1 : count;
    for (int i = 0; i < 3; i++)
        if (!is_one_of(
                    bounds[i],
                    KIND(ABSENT) | KIND(NONE) | KIND(INT) | KIND(BOOL)))
            jinja_fail(j, "slice indices must be integers or None");
    if (step == 0)
        jinja_fail(j, "slice step cannot be zero");
    for (int i = 0; i < 2; i++) {
        out[i] = integer_or(bounds[i], (step < 0) == (i == 0) ? most : least);
        if (out[i] < 0 && is_one_of(bounds[i], KIND(INT)))
            out[i] += count;
        out[i] = out[i] < least ? least : out[i] > most ? most : out[i];
    }
    return is_ok(j);
}

struct value jinja_sliced(
        struct jinja *j, struct value value, const struct value bounds[3])
{
    int64_t at[3];
    bool is_text = value.kind == STRING;
    if (value.kind == UNDEFINED)
        jinja_use_undefined(j, value);
    if (!is_text && !is_one_of(value, KIND(LIST) | KIND(TUPLE)))
        return jinja_undefined(jinja_word("[slice]"), value.kind);
    size_t count = jinja_length(j, value);
    if (!is_ok(j) || !clip(j, bounds, (int64_t)count, at))
        return jinja_none();
    int64_t first = at[0], last = at[1] < first ? first : at[1];
    if (is_text && at[2] == 1) {
        size_t begin = jinja_past_characters(value, 0, (size_t)first);
        return jinja_part(
                value, begin,
                jinja_past_characters(value, begin, (size_t)(last - first)));
    }
    struct value made = jinja_list(j, is_text ? LIST : value.kind, 0);
    struct items from;
    jinja_iterate(j, value, &from);
    for (int64_t i = first; is_ok(j) && (at[2] > 0 ? i < at[1] : i > at[1]);) {
        jinja_append(j, made, from.at[i]);
        if (__builtin_add_overflow(i, at[2], &i))
            break;
    }
    if (!is_text)
        return made;
    made = jinja_join_items(j, jinja_word(""), made.items, false);
    made.is_safe = value.is_safe;
    return made;
}
