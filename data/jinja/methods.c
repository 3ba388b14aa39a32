/* methods.c - methods of text, mappings, lists and loops. */
#include "data/jinja/text.h"

#include "base/must.h"
#include "data/tokenizer/utf8.h"

#include <utf8proc.h>

static bool need_text(struct jinja *j, struct value value)
{
    if (value.kind != STRING)
        jinja_fail(j, "a str is needed, not %s", jinja_type(value));
    return value.kind == STRING && j->result == JINJA_DONE;
}

/* --- ends ----------------------------------------------------------------- */

static struct value strip(
        struct jinja *j, struct value self, struct value set, bool left,
        bool right)
{
    if (set.kind == NONE)
        set = jinja_absent;
    if (set.kind != ABSENT && !need_text(j, set))
        return self;
    return jinja_stripped(j, self, set, left, right);
}

JINJA_RETURN(str_strip, strip(j, self, a[0], true, true))
JINJA_RETURN(str_lstrip, strip(j, self, a[0], true, false))
JINJA_RETURN(str_rstrip, strip(j, self, a[0], false, true))

static bool has_end(struct value text, struct value end, bool at_begin)
{
    return end.bytes <= text.bytes &&
           memcmp(at_begin ? text.text : text.text + text.bytes - end.bytes,
                  end.text, end.bytes) == 0;
}

/* Of the text, or of its part from a[1] to a[2]; a[0] may be a tuple. */
static struct value has_one_of_ends(
        struct jinja *j, struct value self, const struct value *a,
        bool at_begin)
{
    const struct value bounds[3] = {a[1], a[2], jinja_absent};
    const struct value *ends = a[0].kind == TUPLE ? a[0].items->at : a;
    size_t count = a[0].kind == TUPLE ? a[0].items->count : 1;
    if (a[1].kind != ABSENT)
        self = jinja_sliced(j, self, bounds);
    for (size_t i = 0; i < count && need_text(j, ends[i]); i++)
        if (jinja_read(j, ends[i].bytes) && has_end(self, ends[i], at_begin))
            return jinja_truth(true);
    return jinja_truth(false);
}

JINJA_RETURN(str_startswith, has_one_of_ends(j, self, a, true))
JINJA_RETURN(str_endswith, has_one_of_ends(j, self, a, false))
JINJA_RETURN(
        str_removeprefix, need_text(j, a[0]) && has_end(self, a[0], true)
                                  ? jinja_part(self, a[0].bytes, self.bytes)
                                  : self)
JINJA_RETURN(
        str_removesuffix, need_text(j, a[0]) && has_end(self, a[0], false)
                                  ? jinja_part(self, 0, self.bytes - a[0].bytes)
                                  : self)

/* --- parts ---------------------------------------------------------------- */

static const char *find_last(struct value text, struct value part)
{
    for (size_t at = text.bytes - part.bytes + 1; at-- > 0;)
        if (memcmp(text.text + at, part.text, part.bytes) == 0)
            return text.text + at;
    return NULL;
}

/* The first or last place of a part; NULL: there is none. */
static const char *find(
        struct jinja *j, struct value text, struct value part, bool is_last)
{
    if (part.bytes > text.bytes ||
        !jinja_read(j, text.bytes * (is_last ? 8 : 1) + part.bytes))
        return NULL;
    return is_last ? find_last(text, part)
                   : memmem(text.text, text.bytes, part.text, part.bytes);
}

/* At white space: from the left, or from the right and then turned round. */
static struct value split_at_blanks(
        struct jinja *j, struct value text, int64_t most, bool is_right)
{
    struct value parts = jinja_list(j, LIST, 0);
    unsigned bytes;
    while (j->result == JINJA_DONE) {
        text = jinja_stripped(j, text, jinja_absent, !is_right, is_right);
        if (text.bytes == 0)
            break;
        size_t at = is_right ? text.bytes : 0, end = at;
        while (most != 0 && (is_right ? end > 0 : end < text.bytes)) {
            size_t next =
                    is_right
                            ? utf8_before((const unsigned char *)text.text, end)
                            : end;
            if (jinja_is_space(jinja_character(text, next, &bytes)))
                break;
            end = is_right ? next : end + bytes;
        }
        jinja_read(j, 8 * (is_right ? at - end : end));
        if (most == 0) {
            jinja_append(j, parts, text);
            break;
        }
        jinja_append(
                j, parts,
                is_right ? jinja_part(text, end, at)
                         : jinja_part(text, 0, end));
        text = is_right ? jinja_part(text, 0, end)
                        : jinja_part(text, end, text.bytes);
        most--;
    }
    return parts;
}

static struct value split_at_text(
        struct jinja *j, struct value text, struct value mark, int64_t most,
        bool is_right)
{
    struct value parts = jinja_list(j, LIST, 0);
    if (mark.bytes == 0)
        jinja_fail(j, "empty separator");
    for (; most != 0 && j->result == JINJA_DONE; most--) {
        const char *found = find(j, text, mark, is_right);
        if (!found)
            break;
        size_t at = (size_t)(found - text.text), after = at + mark.bytes;
        jinja_append(
                j, parts,
                is_right ? jinja_part(text, after, text.bytes)
                         : jinja_part(text, 0, at));
        text = is_right ? jinja_part(text, 0, at)
                        : jinja_part(text, after, text.bytes);
    }
    jinja_append(j, parts, text);
    return parts;
}

static struct value split(
        struct jinja *j, struct value self, const struct value *a,
        bool is_right)
{
    const struct value back[3] = {
            jinja_absent, jinja_absent, jinja_integer(-1)};
    int64_t most = integer_or(a[1], -1);
    bool at_blanks = is_one_of(a[0], KIND(ABSENT) | KIND(NONE));
    if (!at_blanks && !need_text(j, a[0]))
        return self;
    struct value parts = at_blanks
                                 ? split_at_blanks(j, self, most, is_right)
                                 : split_at_text(j, self, a[0], most, is_right);
    return is_right && j->result == JINJA_DONE ? jinja_sliced(j, parts, back)
                                               : parts;
}

JINJA_RETURN(str_split, split(j, self, a, false))
JINJA_RETURN(str_rsplit, split(j, self, a, true))
JINJA_RETURN(str_splitlines, jinja_lines(j, self, jinja_is_true(a[0])))

static struct value partition(
        struct jinja *j, struct value self, struct value mark, bool is_right)
{
    struct value parts = jinja_list(j, TUPLE, 3), none = jinja_part(self, 0, 0);
    if (!need_text(j, mark))
        return self;
    if (mark.bytes == 0)
        jinja_fail(j, "empty separator");
    const char *found = find(j, self, mark, is_right);
    size_t at = found ? (size_t)(found - self.text) : 0;
    jinja_append(
            j, parts, !found && !is_right ? self : jinja_part(self, 0, at));
    jinja_append(j, parts, found ? mark : none);
    jinja_append(
            j, parts,
            found      ? jinja_part(self, at + mark.bytes, self.bytes)
            : is_right ? self
                       : none);
    return parts;
}

JINJA_RETURN(str_partition, partition(j, self, a[0], false))
JINJA_RETURN(str_rpartition, partition(j, self, a[0], true))

/* In characters, within the slice from a[1] to a[2]; -1: it is not there. */
static int64_t position(
        struct jinja *j, struct value self, const struct value *a, bool is_last)
{
    const struct value bounds[3] = {a[1], a[2], jinja_absent};
    if (!need_text(j, a[0]))
        return -1;
    struct value within = jinja_sliced(j, self, bounds);
    if (j->result != JINJA_DONE)
        return -1;
    const char *found = find(j, within, a[0], is_last);
    jinja_read(j, self.bytes);
    return found ? (int64_t)jinja_characters(
                           jinja_slice(self.text, (size_t)(found - self.text)))
                 : -1;
}

JINJA_RETURN(str_find, jinja_integer(position(j, self, a, false)))
JINJA_RETURN(str_rfind, jinja_integer(position(j, self, a, true)))

JINJA_FUNCTION(str_index)
{
    int64_t at = position(j, self, a, false);
    if (at < 0)
        jinja_fail(j, "substring not found");
    return jinja_integer(at);
}

JINJA_FUNCTION(str_count)
{
    const struct value bounds[3] = {a[1], a[2], jinja_absent};
    int64_t count = 0;
    const char *found;
    self = jinja_sliced(j, self, bounds);
    if (!need_text(j, a[0]) || !need_text(j, self))
        return self;
    if (a[0].bytes == 0)
        return jinja_integer((int64_t)jinja_characters(self) + 1);
    while ((found = find(j, self, a[0], false))) {
        self = jinja_part(
                self, (size_t)(found - self.text) + a[0].bytes, self.bytes);
        count++;
    }
    return jinja_integer(count);
}

/* --- made anew ------------------------------------------------------------ */

JINJA_RETURN(str_lower, jinja_in_case(j, self, LOWER))
JINJA_RETURN(str_upper, jinja_in_case(j, self, UPPER))
JINJA_RETURN(str_title, jinja_in_case(j, self, TITLE))
JINJA_RETURN(str_capitalize, jinja_in_case(j, self, CAPITAL))
JINJA_FUNCTION(str_replace)
{
    if (!need_text(j, a[0]) || !need_text(j, a[1]))
        return self;
    struct value to = self.is_safe ? jinja_escaped(j, a[1]) : a[1];
    return jinja_replaced(j, self, a[0], to, integer_or(a[2], -1));
}

JINJA_FUNCTION(str_join)
{
    struct items items;
    return jinja_iterate(j, a[0], &items)
                   ? jinja_join_items(j, self, &items, true)
                   : self;
}

/* --- classes -------------------------------------------------------------- */

/* Has characters, and all of them are of categories from one to another. */
static struct value is_all(
        struct jinja *j, struct value text, utf8proc_category_t from,
        utf8proc_category_t to)
{
    unsigned bytes;
    bool is_all = text.bytes > 0;
    for (size_t i = 0; is_all && i < text.bytes && jinja_charge(j, 1, 0);
         i += bytes) {
        utf8proc_category_t category = utf8proc_category(
                (utf8proc_int32_t)jinja_character(text, i, &bytes));
        is_all = category >= from && category <= to;
    }
    return jinja_truth(is_all);
}

#define LETTERS UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO
#define DIGITS  UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_ND
JINJA_RETURN(str_isalpha, is_all(j, self, LETTERS))
JINJA_RETURN(str_isdigit, is_all(j, self, DIGITS))
#undef LETTERS
#undef DIGITS

static struct value by_test(
        struct jinja *j, const char *test, struct value self)
{
    return jinja_call_row(
            j, jinja_test(test, strlen(test)), self, &(struct arguments){0});
}

JINJA_RETURN(str_islower, by_test(j, "lower", self))
JINJA_RETURN(str_isupper, by_test(j, "upper", self))

/* --- mappings, lists, loops ----------------------------------------------- */

JINJA_FUNCTION(dict_get)
{
    const struct value *found = jinja_find(j, self.dict, a[0]);
    return found ? *found : a[1].kind == ABSENT ? jinja_none() : a[1];
}

/* Keys, values or, with both, pairs. */
static struct value view(
        struct jinja *j, struct value self, bool has_keys, bool has_values)
{
    struct value made = jinja_list(j, VIEW, self.dict->count);
    for (size_t i = 0; i < self.dict->count && j->result == JINJA_DONE; i++) {
        const struct pair *pair = &self.dict->pairs[i];
        jinja_append(
                j, made,
                has_keys && has_values ? jinja_tuple(j, pair->key, pair->value)
                : has_keys             ? pair->key
                                       : pair->value);
    }
    return made;
}

JINJA_RETURN(dict_items, view(j, self, true, true))
JINJA_RETURN(dict_keys, view(j, self, true, false))
JINJA_RETURN(dict_values, view(j, self, false, true))

JINJA_FUNCTION(copy)
{
    return self; /* nothing changes either */
}

/* Python's change what they are called on, which a sandbox refuses. */
JINJA_FUNCTION(refused)
{
    jinja_fail(j, "templates may not change a %s", jinja_type(self));
    return self;
}

JINJA_FUNCTION(list_index)
{
    for (size_t i = 0; i < self.items->count && jinja_charge(j, 1, 0); i++)
        if (jinja_equal(j, self.items->at[i], a[0]))
            return jinja_integer((int64_t)i);
    jinja_fail(j, "the value is not in the list");
    return self;
}

JINJA_FUNCTION(list_count)
{
    int64_t count = 0;
    for (size_t i = 0; i < self.items->count && jinja_charge(j, 1, 0); i++)
        count += jinja_equal(j, self.items->at[i], a[0]);
    return jinja_integer(count);
}

JINJA_FUNCTION(loop_cycle)
{
    if (given->count)
        return given->at[self.loop->at % given->count];
    jinja_fail(j, "no items for cycling given");
    return self;
}

JINJA_FUNCTION(loop_changed)
{
    struct value now = jinja_list(j, TUPLE, 0);
    *now.items = (struct items){.at = given->at, .count = given->count};
    bool is_new = self.loop->changed.kind == ABSENT ||
                  !jinja_equal(j, self.loop->changed, now);
    self.loop->changed = now;
    return jinja_truth(is_new);
}

#define ROWS (KIND(LIST) | KIND(TUPLE))

/* Rows of one name stand together. */
const struct row jinja_methods[] = {
        {"append", refused, "*", KIND(LIST)},
        {"capitalize", str_capitalize, "", KIND(STRING)},
        {"changed", loop_changed, "*", KIND(LOOP)},
        {"clear", refused, "*", KIND(DICT) | KIND(LIST)},
        {"copy", copy, "", KIND(DICT) | KIND(LIST)},
        {"count", str_count, "sub! start end", KIND(STRING)},
        {"count", list_count, "value!", ROWS},
        {"cycle", loop_cycle, "*", KIND(LOOP)},
        {"endswith", str_endswith, "suffix! start end", KIND(STRING)},
        {"extend", refused, "*", KIND(LIST)},
        {"find", str_find, "sub! start end", KIND(STRING)},
        {"get", dict_get, "key! default", KIND(DICT)},
        {"index", str_index, "sub! start end", KIND(STRING)},
        {"index", list_index, "value!", ROWS},
        {"insert", refused, "*", KIND(LIST)},
        {"isalpha", str_isalpha, "", KIND(STRING)},
        {"isdigit", str_isdigit, "", KIND(STRING)},
        {"islower", str_islower, "", KIND(STRING)},
        {"isupper", str_isupper, "", KIND(STRING)},
        {"items", dict_items, "", KIND(DICT)},
        {"join", str_join, "iterable!", KIND(STRING)},
        {"keys", dict_keys, "", KIND(DICT)},
        {"lower", str_lower, "", KIND(STRING)},
        {"lstrip", str_lstrip, "chars", KIND(STRING)},
        {"partition", str_partition, "sep!", KIND(STRING)},
        {"pop", refused, "*", KIND(DICT) | KIND(LIST)},
        {"popitem", refused, "*", KIND(DICT)},
        {"remove", refused, "*", KIND(LIST)},
        {"removeprefix", str_removeprefix, "prefix!", KIND(STRING)},
        {"removesuffix", str_removesuffix, "suffix!", KIND(STRING)},
        {"replace", str_replace, "old! new! count", KIND(STRING)},
        {"rfind", str_rfind, "sub! start end", KIND(STRING)},
        {"rpartition", str_rpartition, "sep!", KIND(STRING)},
        {"rsplit", str_rsplit, "sep maxsplit", KIND(STRING)},
        {"rstrip", str_rstrip, "chars", KIND(STRING)},
        {"setdefault", refused, "*", KIND(DICT)},
        {"sort", refused, "*", KIND(LIST)},
        {"split", str_split, "sep maxsplit", KIND(STRING)},
        {"splitlines", str_splitlines, "keepends", KIND(STRING)},
        {"startswith", str_startswith, "prefix! start end", KIND(STRING)},
        {"strip", str_strip, "chars", KIND(STRING)},
        {"title", str_title, "", KIND(STRING)},
        {"update", refused, "*", KIND(DICT)},
        {"upper", str_upper, "", KIND(STRING)},
        {"values", dict_values, "", KIND(DICT)},
        {0}};

const struct row *jinja_method_of(const struct row *first, enum kind kind)
{
    for (const struct row *row = first;
         row && row->name && strcmp(row->name, first->name) == 0; row++)
        if (row->kinds & KIND(kind))
            return row;
    return NULL;
}

const struct row *jinja_method(enum kind kind, const char *name, size_t bytes)
{
    return jinja_method_of(jinja_row(jinja_methods, name, bytes), kind);
}
