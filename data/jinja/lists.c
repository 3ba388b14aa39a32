/* lists.c - filters of sequences and mappings. */
#include "data/jinja/text.h"

#include "base/must.h"

#include <ctype.h>
#include <stdlib.h>

/* item.a.b for the attribute "a.b", whose digits are indices; `other`, unless
 * it is absent or None, for what is undefined. */
static struct value attribute_of(
        struct jinja *j, struct value item, struct value attribute,
        struct value other)
{
    bool has_other = !is_one_of(other, KIND(ABSENT) | KIND(NONE));
    if (is_one_of(attribute, KIND(ABSENT) | KIND(NONE)))
        return item;
    size_t end = 0;
    do {
        struct value part = attribute;
        int64_t index;
        if (attribute.kind == STRING) {
            const char *dot =
                    memchr(attribute.text + end, '.', attribute.bytes - end);
            size_t begin = end;
            end = dot ? (size_t)(dot - attribute.text) : attribute.bytes;
            part = jinja_part(attribute, begin, end++);
            if (part.bytes && isdigit((unsigned char)*part.text) &&
                jinja_parse_integer(part, 10, &index))
                part = jinja_integer(index);
        }
        item = jinja_item(j, item, part);
        if (has_other && item.kind == UNDEFINED)
            item = other;
    } while (attribute.kind == STRING && end <= attribute.bytes &&
             j->result == JINJA_DONE);
    return item;
}

static struct value without_case(
        struct jinja *j, struct value value, struct value is_sensitive)
{
    return value.kind == STRING && !jinja_is_true(is_sensitive)
                   ? jinja_in_case(j, value, LOWER)
                   : value;
}

/* What a filter yields that Python makes as it is asked for. */
static struct value generator(struct jinja *j)
{
    return jinja_list(j, GENERATOR, 0);
}

JINJA_FUNCTION(do_items)
{
    struct value pairs = generator(j);
    if (self.kind != DICT && self.kind != UNDEFINED)
        jinja_fail(j, "Can only get item pairs from a mapping.");
    for (size_t i = 0;
         self.kind == DICT && i < self.dict->count && j->result == JINJA_DONE;
         i++)
        jinja_append(
                j, pairs,
                jinja_tuple(
                        j, self.dict->pairs[i].key, self.dict->pairs[i].value));
    return pairs;
}

JINJA_FUNCTION(do_list)
{
    struct items items;
    struct value list = jinja_list(j, LIST, 0);
    if (jinja_iterate(j, self, &items))
        *list.items = (struct items){.at = items.at, .count = items.count};
    return list;
}

JINJA_FUNCTION(do_first)
{
    struct items items;
    return jinja_iterate(j, self, &items) && items.count
                   ? items.at[0]
                   : jinja_undefined(
                             jinja_word("No first item, sequence was empty."),
                             UNDEFINED);
}

JINJA_FUNCTION(do_last)
{
    struct items items;
    if (self.kind == GENERATOR)
        jinja_fail(j, "'generator' object is not reversible");
    return jinja_iterate(j, self, &items) && items.count
                   ? items.at[items.count - 1]
                   : jinja_undefined(
                             jinja_word("No last item, sequence was empty."),
                             UNDEFINED);
}

JINJA_FUNCTION(do_reverse)
{
    const struct value back[3] = {{0}, {0}, {.kind = INT, .integer = -1}};
    if (self.kind == STRING)
        return jinja_sliced(j, self, back);
    struct value list = do_list(j, self, a, given);
    list = jinja_sliced(j, list, back);
    list.kind = list.kind == LIST ? GENERATOR : list.kind;
    return list;
}

JINJA_FUNCTION(do_join)
{
    struct items items;
    struct value list = jinja_list(j, LIST, 0);
    if (!jinja_iterate(j, self, &items))
        return self;
    for (size_t i = 0;
         a[1].kind != ABSENT && i < items.count && j->result == JINJA_DONE; i++)
        jinja_append(j, list, attribute_of(j, items.at[i], a[1], jinja_absent));
    return jinja_join_items(
            j, jinja_str(j, text_or(a[0], "")),
            a[1].kind != ABSENT ? list.items : &items, false);
}

/* --- each item through a filter or a test --------------------------------- */

static struct value named_or_absent(
        const struct arguments *given, const char *name)
{
    for (size_t i = 0; i < given->named_count; i++)
        if (jinja_is_text(given->named[i].key, name))
            return given->named[i].value;
    return jinja_absent;
}

JINJA_FUNCTION(do_map)
{
    struct value list = generator(j), other = named_or_absent(given, "default");
    struct value attribute = named_or_absent(given, "attribute");
    struct arguments rest = *given;
    const struct row *row = NULL;
    struct items items;
    if (!jinja_is_true(self))
        return list;
    if (given->count == 0 && attribute.kind == ABSENT)
        jinja_fail(j, "map requires a filter argument");
    else if (given->count > 0)
        row = jinja_named_row(j, *rest.at++, false), rest.count--;
    if (!jinja_iterate(j, self, &items))
        return list;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++)
        jinja_append(
                j, list,
                row ? jinja_call_row(j, row, items.at[i], &rest)
                    : attribute_of(j, items.at[i], attribute, other));
    return list;
}

/* The items, or those whose attribute does, that pass a test or fail it. */
static struct value selected(
        struct jinja *j, struct value self, const struct arguments *given,
        bool by_attribute, bool passes)
{
    struct value list = generator(j), attribute = {.kind = ABSENT};
    struct arguments rest = *given;
    const struct row *row = NULL;
    struct items items;
    if (!jinja_is_true(self))
        return list;
    if (by_attribute && rest.count == 0)
        jinja_fail(j, "Missing parameter for attribute name");
    else if (by_attribute)
        attribute = *rest.at++, rest.count--;
    if (rest.count > 0)
        row = jinja_named_row(j, *rest.at++, true), rest.count--;
    if (!jinja_iterate(j, self, &items))
        return list;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++) {
        struct value part =
                attribute_of(j, items.at[i], attribute, jinja_absent);
        if (row && j->result == JINJA_DONE)
            part = jinja_call_row(j, row, part, &rest);
        if (jinja_is_true(part) == passes)
            jinja_append(j, list, items.at[i]);
    }
    return list;
}

JINJA_RETURN(do_select, selected(j, self, given, false, true))
JINJA_RETURN(do_reject, selected(j, self, given, false, false))
JINJA_RETURN(do_selectattr, selected(j, self, given, true, true))
JINJA_RETURN(do_rejectattr, selected(j, self, given, true, false))

/* --- order ---------------------------------------------------------------- */

/* Stable: sorts `a`, pairs of key and item; `b` is as long. */
static void sort(
        struct jinja *j, struct pair *a, struct pair *b, size_t count,
        bool reverse)
{
    size_t half = count / 2, left = 0, right = half;
    if (count < 2 || !jinja_enter(j))
        return;
    sort(j, a, b, half, reverse);
    sort(j, a + half, b + half, count - half, reverse);
    for (size_t i = 0; i < count && jinja_charge(j, 1, 0); i++) {
        bool takes_right = left == half;
        if (left < half && right < count) {
            int order = jinja_compare(j, a[right].key, a[left].key, "<");
            takes_right = reverse ? order > 0 : order < 0;
        }
        b[i] = a[takes_right ? right++ : left++];
    }
    if (j->result == JINJA_DONE)
        memcpy(a, b, count * sizeof *a);
    jinja_leave(j);
}

/* The items ordered by the keys; both are lists of one length. */
static struct value sorted(
        struct jinja *j, struct value keys, const struct items *items,
        bool reverse)
{
    size_t count = items->count;
    struct value list = jinja_list(j, LIST, count);
    if (j->result != JINJA_DONE ||
        !jinja_affords(j, count, 2 * sizeof(struct pair)))
        return list;
    struct pair *a = jinja_alloc(j, count * sizeof *a);
    struct pair *b = jinja_alloc(j, count * sizeof *b);
    for (size_t i = 0; i < count; i++)
        a[i] = (struct pair){keys.items->at[i], items->at[i]};
    sort(j, a, b, count, reverse);
    for (size_t i = 0; i < count; i++)
        jinja_append(j, list, a[i].value);
    return list;
}

/* A list of the attributes, which commas part. */
static struct value sort_key(
        struct jinja *j, struct value item, struct value attributes,
        struct value is_sensitive)
{
    struct value key = jinja_list(j, LIST, 0), part = attributes;
    size_t end = 0;
    do {
        if (attributes.kind == STRING) {
            const char *comma =
                    memchr(attributes.text + end, ',', attributes.bytes - end);
            size_t begin = end;
            end = comma ? (size_t)(comma - attributes.text) : attributes.bytes;
            part = jinja_part(attributes, begin, end++);
        }
        struct value value = attribute_of(j, item, part, jinja_absent);
        jinja_append(j, key, without_case(j, value, is_sensitive));
    } while (attributes.kind == STRING && end <= attributes.bytes &&
             j->result == JINJA_DONE);
    return key;
}

JINJA_FUNCTION(do_sort)
{
    struct value keys = jinja_list(j, LIST, 0);
    struct items items;
    if (!jinja_iterate(j, self, &items))
        return self;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++)
        jinja_append(j, keys, sort_key(j, items.at[i], a[2], a[1]));
    return sorted(j, keys, &items, jinja_is_true(a[0]));
}

JINJA_FUNCTION(do_dictsort)
{
    struct value keys = jinja_list(j, LIST, 0),
                 pairs = do_items(j, self, a, given);
    bool by_value = jinja_is_text(a[1], "value");
    if (!by_value && !jinja_is_text(text_or(a[1], "key"), "key"))
        jinja_fail(j, "You can only sort by either \"key\" or \"value\"");
    for (size_t i = 0; i < pairs.items->count && j->result == JINJA_DONE; i++)
        jinja_append(
                j, keys,
                without_case(j, pairs.items->at[i].items->at[by_value], a[0]));
    return sorted(j, keys, pairs.items, jinja_is_true(a[2]));
}

JINJA_FUNCTION(do_unique)
{
    struct value list = generator(j), seen = jinja_mapping(j, DICT, 0);
    struct items items;
    if (!jinja_iterate(j, self, &items))
        return list;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++) {
        struct value key = attribute_of(j, items.at[i], a[1], jinja_absent);
        key = without_case(j, key, a[0]);
        if (jinja_find(j, seen.dict, key))
            continue;
        jinja_put(j, seen.dict, key, key);
        jinja_append(j, list, items.at[i]);
    }
    return list;
}

static struct value extreme(
        struct jinja *j, struct value self, const struct value *a, int sign)
{
    struct items items;
    struct value best = jinja_undefined(
            jinja_word("No aggregated item, sequence was empty."), UNDEFINED);
    struct value best_key = best;
    if (!jinja_iterate(j, self, &items))
        return best;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++) {
        struct value key = attribute_of(j, items.at[i], a[1], jinja_absent);
        key = without_case(j, key, a[0]);
        if (i > 0 &&
            sign * jinja_compare(j, key, best_key, sign < 0 ? "<" : ">") <= 0)
            continue;
        best = items.at[i];
        best_key = key;
    }
    return best;
}

JINJA_RETURN(do_min, extreme(j, self, a, -1))
JINJA_RETURN(do_max, extreme(j, self, a, 1))

/* --- parts ---------------------------------------------------------------- */

JINJA_FUNCTION(do_batch)
{
    struct value rows = generator(j), row = {0};
    int64_t count = integer_or(a[0], 0);
    struct items items;
    if (!jinja_iterate(j, self, &items))
        return rows;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++) {
        if (row.kind == ABSENT || (int64_t)row.items->count == count) {
            row = jinja_list(j, LIST, 0);
            jinja_append(j, rows, row);
        }
        jinja_append(j, row, items.at[i]);
    }
    bool fills = !is_one_of(a[1], KIND(ABSENT) | KIND(NONE));
    if (fills && count > 0 && !jinja_affords(j, (uint64_t)count, sizeof row))
        return rows;
    while (fills && row.kind != ABSENT && (int64_t)row.items->count < count &&
           j->result == JINJA_DONE)
        jinja_append(j, row, a[1]);
    return rows;
}

JINJA_FUNCTION(do_sum)
{
    struct value sum = a[1].kind == ABSENT ? jinja_integer(0) : a[1];
    struct items items;
    if (!jinja_iterate(j, self, &items))
        return self;
    for (size_t i = 0; i < items.count && j->result == JINJA_DONE; i++)
        sum = jinja_operate(
                j, '+', sum, attribute_of(j, items.at[i], a[0], jinja_absent));
    return sum;
}

const struct row jinja_list_filters[] = {
        {"batch", do_batch, "linecount! fill_with", 0},
        {"dictsort", do_dictsort, "case_sensitive by reverse", KIND(DICT)},
        {"first", do_first, "", 0},
        {"items", do_items, "", 0},
        {"join", do_join, "d attribute", 0},
        {"last", do_last, "", 0},
        {"list", do_list, "", 0},
        {"map", do_map, "*", 0},
        {"max", do_max, "case_sensitive attribute", 0},
        {"min", do_min, "case_sensitive attribute", 0},
        {"reject", do_reject, "*", 0},
        {"rejectattr", do_rejectattr, "*", 0},
        {"reverse", do_reverse, "", 0},
        {"select", do_select, "*", 0},
        {"selectattr", do_selectattr, "*", 0},
        {"sort", do_sort, "reverse case_sensitive attribute", 0},
        {"sum", do_sum, "attribute start", 0},
        {"unique", do_unique, "case_sensitive attribute", 0},
        {0}};
