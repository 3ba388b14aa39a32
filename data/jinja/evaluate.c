/* evaluate.c - evaluates expressions and calls. */
#include "data/jinja/tree.h"

/* --- variables ------------------------------------------------------------ */

struct binding {
    int symbol;
    struct value value;
    struct binding *next;
};

struct scope *jinja_push(struct jinja *j, struct scope *outer)
{
    struct scope *scope = jinja_alloc(j, sizeof *scope);
    *scope = (struct scope){outer, NULL};
    return j->scope = scope;
}

void jinja_bind(struct jinja *j, int symbol, struct value value)
{
    struct binding *b = j->scope ? j->scope->first : NULL;
    if (!j->scope) {
        j->variables[symbol] = value;
        return;
    }
    while (b && b->symbol != symbol && jinja_charge(j, 1, 0))
        b = b->next;
    if (!b) {
        b = jinja_alloc(j, sizeof *b);
        *b = (struct binding){symbol, value, j->scope->first};
        j->scope->first = b;
    }
    b->value = value;
}

/* A variable of the context, or a built-in function. */
static struct value resolve(struct jinja *j, struct value name)
{
    const json_t *json = json_object_getn(j->context, name.text, name.bytes);
    const struct row *row = jinja_row(jinja_functions, name.text, name.bytes);
    bool is_date = jinja_is_text(name, "strftime_now");
    if (json && is_date) /* the function formats it */
        j->date = json_string_value(json);
    else if (json)
        return jinja_from_json(j, json);
    return row && (json || !is_date)
                   ? (struct value){.kind = FUNCTION, .function = row}
                   : jinja_undefined(name, 0);
}

static struct value lookup(struct jinja *j, const struct node *node)
{
    for (struct scope *s = j->scope; s; s = s->outer)
        for (struct binding *b = s->first; b; b = b->next) {
            jinja_charge(j, 1, 0);
            if (b->symbol == node->symbol)
                return b->value;
        }
    struct value *value = &j->variables[node->symbol];
    if (value->kind == ABSENT)
        *value = resolve(j, node->constant);
    return *value;
}

/* --- calls ---------------------------------------------------------------- */

static struct arguments arguments_of(struct jinja *j, const struct node *node)
{
    struct arguments given = {0};
    size_t count = (size_t)(node->count > 0 ? node->count - 1 : 0);
    if (count)
        given.at = jinja_alloc(j, count * sizeof *given.at);
    for (; given.count < count && is_ok(j); given.count++)
        given.at[given.count] = jinja_evaluate(j, node->parts[given.count + 1]);
    count = (size_t)node->named_count;
    if (count)
        given.named = jinja_alloc(j, count * sizeof *given.named);
    for (; given.named_count < count && is_ok(j); given.named_count++) {
        const struct named *named = &node->named[given.named_count];
        given.named[given.named_count] =
                (struct pair){named->name, jinja_evaluate(j, named->value)};
    }
    return given;
}

const struct value *jinja_named(
        const struct arguments *given, const char *name, size_t bytes)
{
    for (size_t i = 0; i < given->named_count; i++)
        if (given->named[i].key.bytes == bytes &&
            memcmp(given->named[i].key.text, name, bytes) == 0)
            return &given->named[i].value;
    return NULL;
}

/* Puts arguments in the order of parameters; missing ones are ABSENT. */
static bool settle(
        struct jinja *j, const struct row *row, const struct arguments *given,
        struct value a[PARAMETERS_MAX])
{
    size_t bytes, count = 0, named = 0;
    memset(a, 0, PARAMETERS_MAX * sizeof *a); /* ABSENT */
    for (const char *at = row->parameters; *at; at += bytes, count++) {
        at += strspn(at, " ");
        bytes = strcspn(at, " !");
        const struct value *value = jinja_named(given, at, bytes);
        if (count < given->count)
            a[count] = given->at[count];
        else if (value)
            a[count] = *value;
        named += value != NULL;
        if (at[bytes] == '!' && a[count].kind == ABSENT)
            jinja_fail(
                    j, "%s() lacks its argument %.*s", row->name, (int)bytes,
                    at);
        bytes += at[bytes] == '!';
    }
    if (given->count > count || given->named_count > named)
        jinja_unknown(
                j, "%s() takes %zu arguments here, or none of this name",
                row->name, count);
    return is_ok(j);
}

struct value jinja_call_row(
        struct jinja *j, const struct row *row, struct value self,
        const struct arguments *given)
{
    struct value a[PARAMETERS_MAX], result = jinja_none();
    bool takes_any = row->parameters[0] == '*';
    if (row->kinds && !is_one_of(self, row->kinds)) {
        if (self.kind == UNDEFINED)
            jinja_use_undefined(j, self);
        jinja_fail(
                j, "%s() of a value of type %s", row->name, jinja_type(self));
    } else if ((takes_any || settle(j, row, given, a)) && jinja_enter(j)) {
        result = row->call(j, self, takes_any ? NULL : a, given);
        jinja_leave(j);
    }
    return result;
}

static struct value call(
        struct jinja *j, struct value function, const struct arguments *given)
{
    switch ((enum kind)function.kind) {
    case FUNCTION:
        return jinja_call_row(j, function.function, jinja_none(), given);
    case METHOD:
        return jinja_call_row(
                j, function.method->row, function.method->self, given);
    case MACRO:
        return jinja_run_macro(j, function.macro, given);
    case UNDEFINED:
        if ((KIND(function.owner) & (KIND(STRING) | SEQUENCES | KIND(LOOP))) &&
            !jinja_row(jinja_methods, function.text, function.bytes))
            jinja_unknown(
                    j, "the method %.*s of a %s is not supported",
                    (int)(function.bytes > 60 ? 60 : function.bytes),
                    function.text,
                    jinja_type((struct value){.kind = function.owner}));
        jinja_use_undefined(j, function);
        break;
    default:
        jinja_fail(j, "'%s' object is not callable", jinja_type(function));
    }
    return jinja_none();
}

/* Also calls filters and tests. */
static struct value evaluate_call(struct jinja *j, const struct node *node)
{
    struct value self = jinja_evaluate(j, node->parts[0]);
    struct arguments given = arguments_of(j, node);
    j->line = node->line;
    if (!is_ok(j))
        return self;
    return node->row ? jinja_call_row(j, node->row, self, &given)
                     : call(j, self, &given);
}

/* --- operators as nodes --------------------------------------------------- */

static bool holds(struct jinja *j, char op, struct value a, struct value b)
{
    static const char *const signs[] = {"<", ">", "<=", ">="};
    static const char ops[] = "<>LG";
    if (op == 'E' || op == 'N')
        return jinja_equal(j, a, b) == (op == 'E');
    if (op == 'i' || op == 'o')
        return jinja_is_in(j, a, b) == (op == 'i');
    bool has_nan = (a.kind == FLOAT && a.real != a.real) ||
                   (b.kind == FLOAT && b.real != b.real);
    int which = (int)(strchr(ops, op) - ops);
    int order = jinja_compare(j, a, b, signs[which]);
    order = which % 2 ? -order : order;
    return !has_nan && (order < 0 || (order == 0 && which > 1));
}

static struct value evaluate_compare(struct jinja *j, const struct node *node)
{
    struct value a = jinja_evaluate(j, node->parts[0]);
    bool is_true = true;
    for (int i = 1; i < node->count && is_true && is_ok(j); i++) {
        struct value b = jinja_evaluate(j, node->parts[i]);
        j->line = node->line;
        is_true = is_ok(j) && holds(j, node->ops[i], a, b);
        a = b;
    }
    return jinja_truth(is_true);
}

/* ~ treats safe text like any other. */
static struct value to_join(struct jinja *j, struct value value)
{
    value = jinja_str(j, value);
    value.is_safe = false;
    return value;
}

static struct value evaluate_operators(struct jinja *j, const struct node *node)
{
    struct value made = jinja_evaluate(j, node->parts[0]);
    bool joins = node->kind == CONCATENATE;
    for (int i = 1; i < node->count && is_ok(j); i++) {
        struct value part = jinja_evaluate(j, node->parts[i]);
        j->line = node->line;
        if (is_ok(j) && joins)
            made = jinja_joined(j, to_join(j, made), to_join(j, part));
        else if (is_ok(j))
            made = jinja_operate(j, node->ops[i], made, part);
    }
    return made;
}

static struct value evaluate_sign(struct jinja *j, const struct node *node)
{
    struct value a = jinja_evaluate(j, node->parts[0]);
    j->line = node->line;
    if (!is_ok(j))
        return a;
    if (is_one_of(a, NUMBERS))
        return node->symbol == '-' && a.kind == FLOAT
                       ? jinja_real(-a.real)
                       : jinja_operate(
                                 j, (char)node->symbol, jinja_integer(0), a);
    if (a.kind == UNDEFINED)
        jinja_use_undefined(j, a);
    jinja_fail(j, "a sign before a value of type %s", jinja_type(a));
    return a;
}

static struct value evaluate_either(struct jinja *j, const struct node *node)
{
    struct value a = jinja_evaluate(j, node->parts[0]);
    for (int i = 1;
         i < node->count && is_ok(j) && jinja_is_true(a) == (node->kind == AND);
         i++)
        a = jinja_evaluate(j, node->parts[i]);
    return a;
}

static struct value evaluate_choice(struct jinja *j, const struct node *node)
{
    bool is_true = jinja_is_true(jinja_evaluate(j, node->parts[1]));
    const struct node *part = node->parts[is_true ? 0 : 2];
    return part && is_ok(j)
                   ? jinja_evaluate(j, part)
                   : jinja_undefined(
                             jinja_word("an if without else"), UNDEFINED);
}

/* --- parts and containers ------------------------------------------------- */

static struct value evaluate_list(struct jinja *j, const struct node *node)
{
    struct value list = jinja_list(j, node->constant.kind, (size_t)node->count);
    for (int i = 0; i < node->count && is_ok(j); i++)
        jinja_append(j, list, jinja_evaluate(j, node->parts[i]));
    return list;
}

static struct value evaluate_mapping(struct jinja *j, const struct node *node)
{
    struct value made = jinja_list(j, DICT, (size_t)node->count);
    for (int i = 0; i + 1 < node->count && is_ok(j); i += 2) {
        struct value key = jinja_evaluate(j, node->parts[i]);
        jinja_put(j, made, key, jinja_evaluate(j, node->parts[i + 1]));
    }
    return made;
}

static struct value evaluate_slice(struct jinja *j, const struct node *node)
{
    struct value bounds[3] = {{0}};
    struct value value = jinja_evaluate(j, node->parts[0]);
    for (int i = 0; i < 3 && is_ok(j); i++)
        if (node->parts[i + 1])
            bounds[i] = jinja_evaluate(j, node->parts[i + 1]);
    j->line = node->line;
    return is_ok(j) ? jinja_sliced(j, value, bounds) : value;
}

static struct value evaluate_part(struct jinja *j, const struct node *node)
{
    struct value value = jinja_evaluate(j, node->parts[0]);
    struct value key = node->kind == ATTRIBUTE
                               ? node->constant
                               : jinja_evaluate(j, node->parts[1]);
    j->line = node->line;
    if (!is_ok(j))
        return value;
    return node->kind == ATTRIBUTE ? jinja_attribute(j, value, key, node->row)
                                   : jinja_item(j, value, key);
}

static struct value evaluate_block(struct jinja *j, const struct node *node)
{
    struct value value = {
            .kind = MACRO, .macro = jinja_alloc(j, sizeof *value.macro)};
    *value.macro = (struct closure){node->macro, j->scope};
    return value;
}

static struct value evaluate_not(struct jinja *j, const struct node *node)
{
    return jinja_truth(!jinja_is_true(jinja_evaluate(j, node->parts[0])));
}

static struct value (*const evaluators[])(
        struct jinja *j, const struct node *node) = {
        [NAME] = lookup,
        [SEQUENCE] = evaluate_list,
        [MAPPING] = evaluate_mapping,
        [ATTRIBUTE] = evaluate_part,
        [ITEM] = evaluate_part,
        [SLICED] = evaluate_slice,
        [CALL] = evaluate_call,
        [FILTER] = evaluate_call,
        [TEST] = evaluate_call,
        [NOT] = evaluate_not,
        [SIGN] = evaluate_sign,
        [OPERATE] = evaluate_operators,
        [CONCATENATE] = evaluate_operators,
        [COMPARE] = evaluate_compare,
        [AND] = evaluate_either,
        [OR] = evaluate_either,
        [CHOICE] = evaluate_choice,
        [BLOCK] = evaluate_block};

struct value jinja_evaluate(struct jinja *j, const struct node *node)
{
    if (node->kind == CONSTANT)
        return node->constant;
    if (!jinja_enter(j))
        return jinja_none();
    struct value value = evaluators[node->kind](j, node);
    jinja_leave(j);
    return value;
}

/* Converts any number exactly: long double has 64 bits of mantissa or more. */
static long double exact(struct value value)
{
    return value.kind == FLOAT  ? (long double)value.real
           : value.kind == BOOL ? (long double)value.truth
                                : (long double)value.integer;
}

/* --- comparisons, with Python's rules ------------------------------------- */

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
        return jinja_charge(j, 1, 0) && exact(a) == exact(b);
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
        is_equal = a.items == b.items; /* identity */
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
