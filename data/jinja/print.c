/* print.c - what is written, and values as str(), repr() and json.dumps() give
 * them. */
#include "data/jinja/text.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

void jinja_write(struct jinja *j, const char *text, size_t bytes)
{
    struct jinja_output *out = j->out;
    if (!jinja_charge(j, 1 + bytes / 64, bytes))
        return;
    if (out->bytes + bytes + 1 > j->out_capacity)
        out->text = zd_grow(
                out->text, &j->out_capacity, out->bytes + bytes + 4096, 1);
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
}

size_t jinja_capture(struct jinja *j)
{
    if (j->captures++ == 0)
        j->outer_bytes = j->out->bytes;
    return j->out->bytes;
}

struct value jinja_captured(struct jinja *j, size_t since)
{
    size_t bytes = j->out->bytes - since;
    j->captures--;
    j->out->bytes = since;
    j->left.bytes += bytes;
    return jinja_copy(j, bytes ? j->out->text + since : "", bytes);
}

static void write_word(struct jinja *j, const char *text)
{
    jinja_write(j, text, strlen(text));
}

/* --- numbers -------------------------------------------------------------- */

/* The fewest digits that come back exactly, laid out as Python does. */
static void write_real(struct jinja *j, double value)
{
    char digits[40], text[64];
    int precision = 0;
    if (isnan(value) || isinf(value)) {
        write_word(j, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (strtod(digits, NULL) != value && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(text, sizeof text, "%.*e", precision, value);
    else
        snprintf(
                text, sizeof text, "%.*f",
                precision > exponent ? precision - exponent : 1, value);
    write_word(j, text);
}

static void write_integer(struct jinja *j, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    write_word(j, text);
}

/* --- str and repr --------------------------------------------------------- */

static bool is_printable(uint32_t c)
{
    if (c < 0x80)
        return c >= ' ' && c < 0x7f;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static void write_quoted(struct jinja *j, struct value text)
{
    bool has_single = memchr(text.text, '\'', text.bytes) != NULL;
    bool has_double = memchr(text.text, '"', text.bytes) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    size_t done = 0;
    unsigned length;
    jinja_write(j, &quote, 1);
    for (size_t i = 0; i < text.bytes && j->result == JINJA_DONE; i += length) {
        const unsigned char *at = (const unsigned char *)text.text + i;
        uint32_t c = utf8_read(at, &length);
        char escape[16] = "";
        if (c == (unsigned char)quote || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(
                    escape, sizeof escape, "\\%c",
                    c == '\n'   ? 'n'
                    : c == '\r' ? 'r'
                                : 't');
        else if (!is_printable(c))
            snprintf(
                    escape, sizeof escape,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    c);
        if (!escape[0])
            continue;
        jinja_write(j, text.text + done, i - done);
        write_word(j, escape);
        done = i + length;
    }
    jinja_write(j, text.text + done, text.bytes - done);
    jinja_write(j, &quote, 1);
}

static void write_items(
        struct jinja *j, const struct items *items, const char *begin,
        const char *end)
{
    write_word(j, begin);
    for (size_t i = 0; i < items->count && j->result == JINJA_DONE; i++) {
        if (i > 0)
            write_word(j, ", ");
        jinja_write_repr(j, items->at[i]);
    }
    write_word(j, end);
}

static void write_dict(struct jinja *j, const struct dict *dict)
{
    write_word(j, "{");
    for (size_t i = 0; i < dict->count && j->result == JINJA_DONE; i++) {
        if (i > 0)
            write_word(j, ", ");
        jinja_write_repr(j, dict->pairs[i].key);
        write_word(j, ": ");
        jinja_write_repr(j, dict->pairs[i].value);
    }
    write_word(j, "}");
}

static void write_container(struct jinja *j, struct value value)
{
    switch ((enum kind)value.kind) {
    case LIST:
        write_items(j, value.items, "[", "]");
        break;
    case TUPLE:
        write_items(j, value.items, "(", value.items->count == 1 ? ",)" : ")");
        break;
    case VIEW:
        write_items(j, value.items, "dict_items([", "])");
        break;
    case DICT:
        write_dict(j, value.dict);
        break;
    case NAMESPACE:
        write_word(j, "<Namespace ");
        write_dict(j, value.dict);
        write_word(j, ">");
        break;
    default: /* others have an address in their text */
        jinja_fail(j, "a %s cannot be printed", jinja_type(value));
    }
}

void jinja_write_repr(struct jinja *j, struct value value)
{
    if (!jinja_enter(j))
        return;
    switch ((enum kind)value.kind) {
    case ABSENT:
    case UNDEFINED:
        write_word(j, "Undefined");
        break;
    case NONE:
        write_word(j, "None");
        break;
    case BOOL:
        write_word(j, value.truth ? "True" : "False");
        break;
    case INT:
        write_integer(j, value.integer);
        break;
    case FLOAT:
        write_real(j, value.real);
        break;
    case STRING:
        write_word(j, value.is_safe ? "Markup(" : "");
        write_quoted(j, value);
        write_word(j, value.is_safe ? ")" : "");
        break;
    default:
        write_container(j, value);
    }
    jinja_leave(j);
}

void jinja_write_str(struct jinja *j, struct value value)
{
    if (value.kind == STRING)
        jinja_write(j, value.text, value.bytes);
    else if (!is_one_of(value, KIND(UNDEFINED) | KIND(ABSENT)))
        jinja_write_repr(j, value);
}

struct value jinja_str(struct jinja *j, struct value value)
{
    if (value.kind == STRING)
        return value;
    size_t mark = jinja_capture(j);
    jinja_write_str(j, value);
    return jinja_captured(j, mark);
}

/* --- json.dumps ----------------------------------------------------------- */

struct json {
    struct jinja *j;
    const struct json_style *style;
    int level;
};

static void write_escaped(const struct json *json, struct value text)
{
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    struct jinja *j = json->j;
    size_t done = 0;
    unsigned length;
    jinja_write(j, "\"", 1);
    for (size_t i = 0; i < text.bytes; i += length) {
        const unsigned char *at = (const unsigned char *)text.text + i;
        const char *known;
        char escape[16];
        length = 1;
        if (*at >= ' ' && *at != '"' && *at != '\\' &&
            (*at < 0x7f || !json->style->ascii))
            continue;
        uint32_t c = utf8_read(at, &length);
        if (c && c < 0x80 && (known = strchr(from, (int)c)))
            snprintf(escape, sizeof escape, "\\%c", to[known - from]);
        else if (c < 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        else
            snprintf(
                    escape, sizeof escape, "\\u%04x\\u%04x",
                    0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
        jinja_write(j, text.text + done, i - done);
        write_word(j, escape);
        done = i + length;
        if (j->result != JINJA_DONE)
            return;
    }
    jinja_write(j, text.text + done, text.bytes - done);
    jinja_write(j, "\"", 1);
}

static void write_break(const struct json *json, int level)
{
    struct value indent = json->style->indent;
    if (indent.kind == NONE)
        return;
    jinja_write(json->j, "\n", 1);
    for (int i = 0; i < level; i++)
        if (indent.kind == STRING)
            jinja_write(json->j, indent.text, indent.bytes);
        else
            jinja_pad(json->j, jinja_word(" "), indent.integer);
}

static void write_json(struct json *json, struct value value);

static void write_key(struct json *json, struct value key)
{
    struct jinja *j = json->j;
    if (!is_one_of(key, NUMBERS | KIND(NONE) | KIND(STRING))) {
        jinja_fail(
                j, "keys must be str, int, float, bool or None, not %s",
                jinja_type(key));
        return;
    }
    if (key.kind != STRING)
        jinja_write(j, "\"", 1);
    write_json(json, key);
    if (key.kind != STRING)
        jinja_write(j, "\"", 1);
}

/* Of a list or, by its pairs, a mapping. */
static void write_members(
        struct json *json, const struct value *items, const struct pair *pairs,
        size_t count)
{
    struct jinja *j = json->j;
    const struct json_style *style = json->style;
    jinja_write(j, pairs ? "{" : "[", 1);
    json->level++;
    for (size_t i = 0; i < count && j->result == JINJA_DONE; i++) {
        if (i > 0)
            jinja_write_str(j, style->item_separator);
        write_break(json, json->level);
        if (pairs) {
            write_key(json, pairs[i].key);
            jinja_write_str(j, style->key_separator);
        }
        write_json(json, pairs ? pairs[i].value : items[i]);
    }
    json->level--;
    if (count)
        write_break(json, json->level);
    jinja_write(j, pairs ? "}" : "]", 1);
}

static void write_json_dict(struct json *json, struct value value)
{
    static const struct pair none = {{0}, {0}};
    struct dict *dict = value.dict;
    if (json->style->sorts) {
        struct value sorted = jinja_call_row(
                json->j, jinja_filter("dictsort", 8), value,
                &(struct arguments){
                        .at = (struct value[]){jinja_truth(true)}, .count = 1});
        struct value copy = jinja_mapping(json->j, DICT, dict->count);
        for (size_t i = 0;
             json->j->result == JINJA_DONE && i < sorted.items->count; i++)
            jinja_put(
                    json->j, copy.dict, sorted.items->at[i].items->at[0],
                    sorted.items->at[i].items->at[1]);
        dict = copy.dict;
    }
    write_members(json, NULL, dict->count ? dict->pairs : &none, dict->count);
}

static void write_json(struct json *json, struct value value)
{
    struct jinja *j = json->j;
    if (!jinja_enter(j))
        return;
    switch ((enum kind)value.kind) {
    case NONE:
        write_word(j, "null");
        break;
    case BOOL:
        write_word(j, value.truth ? "true" : "false");
        break;
    case INT:
        write_integer(j, value.integer);
        break;
    case FLOAT:
        if (isfinite(value.real))
            write_real(j, value.real);
        else
            write_word(
                    j, isnan(value.real) ? "NaN"
                       : value.real < 0  ? "-Infinity"
                                         : "Infinity");
        break;
    case STRING:
        write_escaped(json, value);
        break;
    case LIST:
    case TUPLE:
        write_members(json, value.items->at, NULL, value.items->count);
        break;
    case DICT:
        write_json_dict(json, value);
        break;
    default:
        jinja_fail(
                j, "Object of type %s is not JSON serializable",
                jinja_type(value));
    }
    jinja_leave(j);
}

struct value jinja_json(
        struct jinja *j, struct value value, const struct json_style *style)
{
    struct json json = {j, style, 0};
    size_t mark = jinja_capture(j);
    write_json(&json, value);
    return jinja_captured(j, mark);
}
