/* operate.c - operators, with Python's rules. */
#include "data/jinja/internal.h"

/* Of any number, exactly; both formats have 64 bits of mantissa or more. */
static long double exact(struct value value)
{
    return value.kind == FLOAT  ? (long double)value.real
           : value.kind == BOOL ? (long double)value.truth
                                : (long double)value.integer;
}

/* --- comparisons ---------------------------------------------------------- */

static bool are_items_equal(
        struct jinja *j, const struct items *a, const struct items *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!jinja_equal(j, a->at[i], b->at[i]))
            return false;
    return true;
}

static bool are_dicts_equal(struct jinja *j, struct value a, struct value b)
{
    if (a.items->count != b.items->count)
        return false;
    for (size_t i = 0; i < a.items->count; i += 2) {
        const struct value *other = jinja_find(j, b, a.items->at[i]);
        if (!other || !jinja_equal(j, a.items->at[i + 1], *other))
            return false;
    }
    return true;
}

bool jinja_equal(struct jinja *j, struct value a, struct value b)
{
    if (is_one_of(a, NUMBERS) && is_one_of(b, NUMBERS))
        return exact(a) == exact(b);
    if (a.kind != b.kind || !jinja_enter(j))
        return false;
    bool is_equal;
    switch ((enum kind)a.kind) {
    case UNDEFINED:
    case NONE:
        is_equal = true;
        break;
    case STRING:
        if (a.bytes && b.bytes) {
            jinja_looks(j, a, NULL);
            jinja_looks(j, b, NULL);
        }
        is_equal = a.bytes == b.bytes && jinja_read(j, a.bytes) &&
                   memcmp(a.text, b.text, a.bytes) == 0;
        break;
    case LIST:
    case TUPLE:
        is_equal = are_items_equal(j, a.items, b.items);
        break;
    case DICT:
        is_equal = are_dicts_equal(j, a, b);
        break;
    default:
        is_equal = a.items == b.items; /* the same thing */
    }
    jinja_leave(j);
    return is_equal;
}

int jinja_compare(
        struct jinja *j, struct value a, struct value b, const char *sign)
{
    int order = 0;
    if (is_one_of(a, NUMBERS) && is_one_of(b, NUMBERS))
        return (exact(a) > exact(b)) - (exact(a) < exact(b));
    if (a.kind == STRING && b.kind == STRING) {
        jinja_looks(j, a, NULL);
        jinja_looks(j, b, NULL);
        size_t least = a.bytes < b.bytes ? a.bytes : b.bytes;
        order = jinja_read(j, least) ? memcmp(a.text, b.text, least) : 0;
        return order ? order : (a.bytes > b.bytes) - (a.bytes < b.bytes);
    }
    if (a.kind == b.kind && is_one_of(a, KIND(LIST) | KIND(TUPLE)))
        jinja_unknown(j, "the order of lists is not supported");
    if (a.kind == UNDEFINED || b.kind == UNDEFINED)
        jinja_use_undefined(j, a.kind == UNDEFINED ? a : b);
    jinja_fail(
            j, "'%s' not supported between instances of '%s' and '%s'", sign,
            jinja_type(a), jinja_type(b));
    return 0;
}

bool jinja_is_in(struct jinja *j, struct value value, struct value where)
{
    struct items items;
    if (where.kind == DICT)
        return jinja_find(j, where, value) != NULL;
    if (where.kind == STRING && value.kind == STRING) {
        jinja_looks(j, where, &value);
        jinja_looks(j, value, NULL);
        return jinja_read(j, value.bytes + where.bytes) &&
               memmem(where.text, where.bytes, value.text, value.bytes);
    }
    if (where.kind == STRING)
        jinja_fail(
                j, "'in <string>' requires string as left operand, not %s",
                jinja_type(value));
    else if (!is_one_of(where, SEQUENCES | KIND(UNDEFINED)))
        jinja_fail(
                j, "argument of type '%s' is not iterable", jinja_type(where));
    if (!jinja_iterate(j, where, &items))
        return false;
    for (size_t i = 0; i < items.count && jinja_charge(j, 1, 0); i++)
        if (jinja_equal(j, items.at[i], value))
            return true;
    return false;
}

/* --- text ----------------------------------------------------------------- */

struct value jinja_unmarked(struct jinja *j, struct value text)
{
    if (text.is_safe)
        jinja_unknown(j, "what escapes text beside safe text is not supported");
    return text;
}

struct value jinja_joined(struct jinja *j, struct value a, struct value b)
{
    char *text = jinja_extend(j, a.text, a.bytes, b.bytes);
    if (!text)
        return jinja_none();
    memcpy(text + a.bytes, b.text, b.bytes);
    a.text = text;
    a.bytes += b.bytes;
    return a;
}

static struct value appended(struct jinja *j, struct value a, struct value b)
{
    struct value list = jinja_list(j, a.kind, 0);
    size_t used = a.items->count * sizeof list,
           more = b.items->count * sizeof list;
    char *at = jinja_extend(j, a.items->at, used, more);
    if (!at)
        return list;
    if (more)
        memcpy(at + used, b.items->at, more);
    list.items->at = (struct value *)(void *)at;
    list.items->count = list.items->capacity = a.items->count + b.items->count;
    return list;
}

static struct value repeated(struct jinja *j, struct value a, int64_t count)
{
    struct value made = jinja_part(a, 0, 0);
    if (a.bytes == 0 || count <= 0 ||
        !jinja_affords(j, (uint64_t)count, a.bytes))
        return made;
    for (int64_t i = 0; i < count && jinja_charge(j, 1, 0); i++)
        made = jinja_joined(j, made, a);
    return made;
}

/* --- arithmetic ----------------------------------------------------------- */

static struct value operate_whole(
        struct jinja *j, char sign, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool is_over = false;
    if (sign == 'D' || sign == '%') {
        is_over = b == -1 && a == INT64_MIN && sign == 'D';
        out = b == -1 ? 0 : a % b; /* rounded down */
        out += out != 0 && (out < 0) != (b < 0) ? b : 0;
        if (sign == 'D' && !is_over)
            out = b == -1 ? -a : (a - out) / b;
    } else {
        is_over = sign == '*'   ? __builtin_mul_overflow(a, b, &out)
                  : sign == '+' ? __builtin_add_overflow(a, b, &out)
                                : __builtin_sub_overflow(a, b, &out);
    }
    if (is_over)
        jinja_unknown(j, "a whole number of over 64 bits is not supported");
    return jinja_integer(out);
}

static struct value operate_numbers(
        struct jinja *j, char sign, struct value a, struct value b)
{
    bool cuts = sign == 'D' || sign == '%';
    double x = (double)exact(a), y = (double)exact(b);
    if ((cuts || sign == '/') && y == 0) {
        jinja_fail(j, "division by zero");
        return jinja_none();
    }
    if (sign == '/')
        return jinja_real(x / y);
    if (a.kind != FLOAT && b.kind != FLOAT)
        return operate_whole(j, sign, integer_or(a, 0), integer_or(b, 0));
    if (cuts)
        jinja_unknown(j, "// and %% of fractions are not supported");
    return jinja_real(sign == '+' ? x + y : sign == '-' ? x - y : x * y);
}

struct value jinja_operate(
        struct jinja *j, char sign, struct value a, struct value b)
{
    if (is_one_of(a, NUMBERS) && is_one_of(b, NUMBERS))
        return operate_numbers(j, sign, a, b);
    if (sign == '+' && a.kind == STRING && b.kind == STRING)
        return a.is_safe == b.is_safe ? jinja_joined(j, a, b)
                                      : jinja_unmarked(j, a.is_safe ? a : b);
    if (sign == '+' && a.kind == b.kind &&
        is_one_of(a, KIND(LIST) | KIND(TUPLE)))
        return appended(j, a, b);
    if (sign == '*' && a.kind == STRING && is_one_of(b, KIND(INT) | KIND(BOOL)))
        return repeated(j, a, integer_or(b, 0));
    if (sign == '*' && b.kind == STRING && is_one_of(a, KIND(INT) | KIND(BOOL)))
        return repeated(j, b, integer_or(a, 0));
    if (sign == '*' && (is_one_of(a, SEQUENCES) || is_one_of(b, SEQUENCES)))
        jinja_unknown(j, "a list times a number is not supported");
    if (sign == '%' && a.kind == STRING)
        jinja_unknown(j, "formatting by %% is not supported");
    if (a.kind == UNDEFINED || b.kind == UNDEFINED)
        jinja_use_undefined(j, a.kind == UNDEFINED ? a : b);
    jinja_fail(
            j, "unsupported operand types for %s: '%s' and '%s'",
            sign == 'D' ? "//" : (char[]){sign, '\0'}, jinja_type(a),
            jinja_type(b));
    return jinja_none();
}
