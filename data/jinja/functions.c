/* functions.c - functions that every template knows. */
#include "data/jinja/text.h"

#include "base/must.h"

#include <locale.h>
#include <time.h>

JINJA_FUNCTION(raise)
{
    struct value text = jinja_str(j, a[0]);
    if (j->result == JINJA_DONE)
        jinja_stop(
                j, JINJA_RAISED, "%.*s",
                (int)(text.bytes > INT32_MAX ? INT32_MAX : text.bytes),
                text.text);
    return text;
}

/* A sandbox has no ranges of more than 100,000. */
JINJA_FUNCTION(range)
{
    struct value list = jinja_list(j, LIST, 0);
    bool has_two = a[1].kind != ABSENT;
    int64_t step = integer_or(a[2], 1);
    int64_t at = has_two ? integer_or(a[0], 0) : 0;
    int64_t end = integer_or(a[has_two], 0);
    for (int i = 0; i < 3; i++)
        if (!is_one_of(a[i], KIND(ABSENT) | KIND(INT) | KIND(BOOL)))
            jinja_fail(
                    j, "'%s' object cannot be interpreted as an integer",
                    jinja_type(a[i]));
    if (step == 0)
        jinja_fail(j, "range() arg 3 must not be zero");
    while (j->result == JINJA_DONE && (step > 0 ? at < end : at > end)) {
        if (list.items->count == 100000)
            jinja_fail(
                    j, "Range too big. The sandbox blocks ranges larger than "
                       "MAX_RANGE (100000).");
        jinja_append(j, list, jinja_integer(at));
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return list;
}

/* Names, after those of mappings. */
static struct value gathered(
        struct jinja *j, const struct arguments *given, enum kind kind)
{
    struct value made = jinja_mapping(j, kind, given->named_count);
    for (size_t i = 0; i < given->count && j->result == JINJA_DONE; i++) {
        struct value from = given->at[i];
        for (size_t k = 0; from.kind == DICT && k < from.dict->count; k++)
            jinja_put(
                    j, made.dict, from.dict->pairs[k].key,
                    from.dict->pairs[k].value);
        if (from.kind != DICT)
            jinja_unknown(j, "a mapping made of pairs is not supported");
    }
    for (size_t i = 0; i < given->named_count; i++)
        jinja_put(j, made.dict, given->named[i].key, given->named[i].value);
    return made;
}

JINJA_RETURN(dict, gathered(j, given, DICT))
JINJA_RETURN(namespace, gathered(j, given, NAMESPACE))

JINJA_FUNCTION(strftime_now)
{
    struct tm day = {0};
    char format[256], text[1024];
    const char *end = strptime(j->date, "%Y-%m-%d", &day);
    if (a[0].kind != STRING || a[0].bytes >= sizeof format || !end || *end) {
        jinja_fail(j, "strftime_now() has no format, or no date");
        return a[0];
    }
    memcpy(format, a[0].text, a[0].bytes);
    format[a[0].bytes] = '\0';
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    size_t bytes = strftime_l(text, sizeof text, format, &day, c);
    freelocale(c);
    return jinja_copy(j, text, bytes);
}

const struct row jinja_functions[] = {
        {"dict", dict, "*", 0},
        {"namespace", namespace, "*", 0},
        {"raise_exception", raise, "message!", 0},
        {"range", range, "start! stop step", 0},
        {"strftime_now", strftime_now, "format!", 0},
        {0}};

const struct row *jinja_function(const char *name, size_t bytes)
{
    return jinja_row(jinja_functions, name, bytes);
}
