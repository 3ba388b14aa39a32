/* evaluate.c - expressions, and what is called in them. */
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

/* A variable of the context, or a function that every template knows. */
static struct value resolve(struct jinja *j, struct value name)
{
    const json_t *json = json_object_getn(j->context, name.text, name.bytes);
    const struct row *row = jinja_row(jinja_functions, name.text, name.bytes);
    bool is_date = jinja_is_text(name, "strftime_now");
    if (json && is_date) /* of which the function makes its text */
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

/* Parameters in their order; what was not given is absent. */
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

/* Of a filter or a test, too. */
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

/* --- operators ------------------------------------------------------------ */

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

/* By ~ safe text is as any other. */
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
