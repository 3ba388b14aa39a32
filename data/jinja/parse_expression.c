/* parse_expression.c - parses expressions into trees. Jinja's precedence, from
 * low to high: or, and, not, comparisons, + -, ~, * / // %, sign; then what
 * follows a value: items, calls, then filters and tests. */
#include "data/jinja/tree.h"

bool jinja_is_sign(const struct parser *p, char op)
{
    return p->at->kind == T_SIGN && p->at->op == op;
}

bool jinja_is_name(const struct parser *p, const char *name)
{
    return p->at->kind == T_NAME && jinja_is_text(p->at->value, name);
}

static void step(struct parser *p)
{
    p->at += p->at->kind != T_END;
    jinja_charge(p->j, 1, 0);
}

bool jinja_take_sign(struct parser *p, char op)
{
    if (!jinja_is_sign(p, op))
        return false;
    step(p);
    return true;
}

bool jinja_take_name(struct parser *p, const char *name)
{
    if (!jinja_is_name(p, name))
        return false;
    step(p);
    return true;
}

void jinja_unexpected(struct parser *p, const char *wanted)
{
    const struct token *at = p->at;
    struct value text = at->value.kind == STRING ? at->value
                        : at->kind == T_END      ? jinja_word("its end")
                                                 : jinja_word("a number");
    p->j->line = at->line;
    jinja_fail(
            p->j, "expected %s, not `%.*s`", wanted,
            (int)(text.bytes > 40 ? 40 : text.bytes), text.text);
}

void jinja_expect_sign(struct parser *p, char op)
{
    char wanted[] = {'`', op, '`', '\0'};
    if (!jinja_take_sign(p, op))
        jinja_unexpected(p, wanted);
}

static struct value expect_name(struct parser *p)
{
    struct value name = p->at->value;
    if (p->at->kind != T_NAME)
        jinja_unexpected(p, "a name");
    else
        step(p);
    return name;
}

int jinja_symbol(struct parser *p, struct value name)
{
    struct jinja_template *t = p->template;
    int symbol = 0;
    while (symbol < t->name_count &&
           (t->names[symbol].bytes != name.bytes ||
            memcmp(t->names[symbol].text, name.text, name.bytes) != 0))
        symbol++;
    if (!jinja_charge(p->j, (size_t)symbol / 16, 0) || symbol < t->name_count)
        return symbol;
    struct value *names = jinja_extend(
            p->j, t->names, (size_t)symbol * sizeof *names, sizeof *names);
    if (!names)
        return 0;
    names[symbol] = name;
    t->names = names;
    return t->name_count++;
}

static void add_part(struct parser *p, struct node *node, struct node *part)
{
    size_t count = (size_t)node->count;
    struct node **parts = jinja_extend(
            p->j, node->parts, count * sizeof *parts, sizeof *parts);
    if (!parts)
        return;
    node->parts = parts;
    parts[count] = part;
    node->count++;
}

struct node *jinja_node(
        struct parser *p, enum node_kind kind, struct node *part)
{
    struct node *node = jinja_alloc(p->j, sizeof *node);
    *node = (struct node){.kind = kind, .line = p->at->line};
    if (part) {
        node->line = part->line;
        add_part(p, node, part);
    }
    return node;
}

static void add_operand(
        struct parser *p, struct node *node, char op, struct node *part)
{
    size_t count = (size_t)node->count, used = node->ops ? count : 0;
    char *ops = jinja_extend(p->j, node->ops, used, count + 1 - used);
    if (!ops)
        return;
    node->ops = ops;
    ops[node->count] = op;
    add_part(p, node, part);
}

/* --- what stands for itself ----------------------------------------------- */

static struct node *constant(struct parser *p, struct value value)
{
    struct node *node = jinja_node(p, CONSTANT, NULL);
    node->constant = value;
    return node;
}

struct node *jinja_parse_name(struct parser *p)
{
    struct node *node = jinja_node(p, NAME, NULL);
    node->constant = expect_name(p);
    node->symbol = jinja_symbol(p, node->constant);
    return node;
}

static struct node *parse_word(struct parser *p)
{
    static const char *const known[] = {"true",  "True", "false",
                                        "False", "none", "None"};
    static const char *const unknown[] = {"varargs", "kwargs"};
    for (int i = 0; i < 6; i++)
        if (jinja_take_name(p, known[i]))
            return constant(p, i < 4 ? jinja_truth(i < 2) : jinja_none());
    for (int i = 0; i < 2; i++)
        if (jinja_is_name(p, unknown[i]))
            jinja_unknown(p->j, "%s is not supported", unknown[i]);
    return jinja_parse_name(p);
}

/* After "[" or "{", up to `end`. */
static struct node *parse_members(struct parser *p, char end)
{
    struct node *node = jinja_node(p, end == ']' ? SEQUENCE : MAPPING, NULL);
    node->constant.kind = LIST;
    while (is_ok(p->j) && !jinja_take_sign(p, end)) {
        add_part(p, node, jinja_parse_expression(p));
        if (end == '}') {
            jinja_expect_sign(p, ':');
            add_part(p, node, jinja_parse_expression(p));
        }
        if (!jinja_is_sign(p, end))
            jinja_expect_sign(p, ',');
    }
    return node;
}

static struct node *parse_constant(struct parser *p)
{
    struct node *node = constant(p, p->at->value);
    step(p);
    while (node->constant.kind == STRING && p->at->kind == T_CONSTANT &&
           p->at->value.kind == STRING) { /* 'a' 'b' is 'ab' */
        node->constant = jinja_joined(p->j, node->constant, p->at->value);
        step(p);
    }
    return node;
}

static struct node *primary(struct parser *p)
{
    if (p->at->kind == T_CONSTANT)
        return parse_constant(p);
    if (jinja_take_sign(p, '['))
        return parse_members(p, ']');
    if (jinja_take_sign(p, '{'))
        return parse_members(p, '}');
    if (jinja_take_sign(p, '(')) {
        struct node *node;
        if (jinja_is_sign(p, ')')) {
            node = jinja_node(p, SEQUENCE, NULL);
            node->constant.kind = TUPLE;
        } else {
            node = jinja_parse_tuple(p, true);
        }
        jinja_expect_sign(p, ')');
        return node;
    }
    if (p->at->kind != T_NAME)
        jinja_unexpected(p, "an expression");
    return parse_word(p);
}

/* --- what follows a value ------------------------------------------------- */

/* After "[". */
static struct node *parse_subscript(struct parser *p, struct node *value)
{
    struct node *node = jinja_node(p, ITEM, value), *bounds[3] = {NULL};
    int count = 0;
    bool is_slice = false;
    for (;; count++) {
        if (!jinja_is_sign(p, ':') && !jinja_is_sign(p, ']'))
            bounds[count] = jinja_parse_expression(p);
        if (count == 2 || !jinja_take_sign(p, ':'))
            break;
        is_slice = true;
    }
    jinja_expect_sign(p, ']');
    if (!is_slice && !bounds[0])
        jinja_unexpected(p, "an index");
    node->kind = is_slice ? SLICED : ITEM;
    for (int i = 0; i < (is_slice ? 3 : 1); i++)
        add_part(p, node, bounds[i]);
    return node;
}

void jinja_add_named(
        struct parser *p, struct node *node, struct value name,
        struct node *value)
{
    size_t count = (size_t)node->named_count;
    struct named *named = jinja_extend(
            p->j, node->named, count * sizeof *named, sizeof *named);
    if (!named)
        return;
    node->named = named;
    named[count] = (struct named){.name = name, .value = value};
    node->named_count++;
}

/* After "("; adds the arguments to the node. */
static void parse_arguments(struct parser *p, struct node *node)
{
    while (is_ok(p->j) && !jinja_take_sign(p, ')')) {
        bool is_named = p->at->kind == T_NAME && p->at[1].kind == T_SIGN &&
                        p->at[1].op == '=';
        if (jinja_is_sign(p, '*')) {
            p->j->line = p->at->line;
            jinja_unknown(p->j, "*arguments in a call are not supported");
        } else if (is_named) {
            struct value name = expect_name(p);
            step(p);
            jinja_add_named(p, node, name, jinja_parse_expression(p));
        } else if (node->named_count) {
            jinja_unexpected(p, "a named argument");
        } else {
            add_part(p, node, jinja_parse_expression(p));
        }
        if (!jinja_is_sign(p, ')'))
            jinja_expect_sign(p, ',');
    }
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *node = jinja_node(p, CALL, callee);
    jinja_expect_sign(p, '(');
    parse_arguments(p, node);
    return node;
}

static struct node *postfix(struct parser *p, struct node *node)
{
    while (is_ok(p->j)) {
        if (jinja_take_sign(p, '[')) {
            node = parse_subscript(p, node);
        } else if (jinja_is_sign(p, '(')) {
            node = parse_call(p, node);
        } else if (jinja_take_sign(p, '.')) {
            bool is_index = p->at->kind == T_CONSTANT;
            node = jinja_node(p, is_index ? ITEM : ATTRIBUTE, node);
            node->line = p->at->line;
            if (is_index) {
                add_part(p, node, parse_constant(p));
                continue;
            }
            node->constant = expect_name(p);
            node->row = jinja_row(
                    jinja_methods, node->constant.text, node->constant.bytes);
        } else {
            break;
        }
    }
    return node;
}

/* After "|". */
static struct node *parse_filter(struct parser *p, struct node *value)
{
    struct node *node = jinja_node(p, FILTER, value);
    node->line = p->j->line = p->at->line;
    node->row = jinja_named_row(p->j, expect_name(p), false);
    if (jinja_take_sign(p, '('))
        parse_arguments(p, node);
    return node;
}

/* After "is". */
static struct node *parse_test(struct parser *p, struct node *value)
{
    bool is_negated = jinja_take_name(p, "not");
    struct node *node = jinja_node(p, TEST, value);
    node->line = p->j->line = p->at->line;
    node->row = jinja_named_row(p->j, expect_name(p), true);
    bool has_value = p->at->kind == T_CONSTANT || jinja_is_sign(p, '[') ||
                     jinja_is_sign(p, '{') ||
                     (p->at->kind == T_NAME && !jinja_is_name(p, "else") &&
                      !jinja_is_name(p, "or") && !jinja_is_name(p, "and") &&
                      !jinja_is_name(p, "if"));
    if (jinja_take_sign(p, '('))
        parse_arguments(p, node);
    else if (has_value)
        add_part(p, node, postfix(p, primary(p)));
    return is_negated ? jinja_node(p, NOT, node) : node;
}

static struct node *parse_filters(struct parser *p, struct node *node)
{
    while (is_ok(p->j)) {
        if (jinja_take_sign(p, '|'))
            node = parse_filter(p, node);
        else if (jinja_take_name(p, "is"))
            node = parse_test(p, node);
        else if (jinja_is_sign(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* --- operators ------------------------------------------------------------ */

static struct node *unary(struct parser *p, bool has_filters)
{
    struct node *node = NULL;
    if (jinja_is_sign(p, '-') || jinja_is_sign(p, '+')) {
        char op = p->at->op;
        step(p);
        if (jinja_enter(p->j)) {
            node = jinja_node(p, SIGN, unary(p, false));
            node->symbol = op;
            jinja_leave(p->j);
        }
    } else {
        node = postfix(p, primary(p));
    }
    return has_filters ? parse_filters(p, node) : node;
}

enum { AT_AND = 1, AT_NOT, AT_COMPARE, AT_SUM, AT_JOIN, AT_PRODUCT, AT_UNARY };

/* Takes an operator of one level; "in" is i, "not in" o. 0: none here. */
static char take_operator(struct parser *p, int level)
{
    static const char *const ops[] = {"", "", "", "ENLG<>", "+-", "~", "*/D%"};
    char op = p->at->op;
    if (level <= AT_AND)
        return jinja_take_name(p, level == AT_AND ? "and" : "or");
    if (p->at->kind == T_SIGN && strchr(ops[level], op)) {
        step(p);
        return op;
    }
    if (level != AT_COMPARE)
        return 0;
    if (jinja_take_name(p, "in"))
        return 'i';
    if (!jinja_is_name(p, "not") || p->at[1].kind != T_NAME ||
        !jinja_is_text(p->at[1].value, "in"))
        return 0;
    step(p);
    step(p);
    return 'o';
}

/* Parses left-associative operators of one level; operands have the next. */
static struct node *chain(struct parser *p, int level)
{
    static const enum node_kind kinds[] = {
            OR, AND, NOT, COMPARE, OPERATE, CONCATENATE, OPERATE};
    struct node *node = NULL;
    int count = 0;
    char op;
    if (level == AT_UNARY)
        return unary(p, true);
    while (level == AT_NOT && is_ok(p->j) && jinja_take_name(p, "not"))
        count++;
    struct node *first = chain(p, level + 1);
    while (is_ok(p->j) && (op = take_operator(p, level))) {
        if (!node)
            node = jinja_node(p, kinds[level], first);
        add_operand(p, node, op, chain(p, level + 1));
    }
    for (count = count > 2 ? 2 - count % 2 : count; count > 0; count--)
        first = jinja_node(p, NOT, first);
    return node ? node : first;
}

static struct node *parse(struct parser *p, bool has_choice)
{
    if (!jinja_enter(p->j))
        return NULL;
    struct node *node = chain(p, 0);
    while (has_choice && is_ok(p->j) && jinja_take_name(p, "if")) {
        node = jinja_node(p, CHOICE, node);
        add_part(p, node, chain(p, 0));
        add_part(p, node, jinja_take_name(p, "else") ? parse(p, true) : NULL);
    }
    jinja_leave(p->j);
    return node;
}

struct node *jinja_parse_expression(struct parser *p)
{
    return parse(p, true);
}

struct node *jinja_parse_tuple(struct parser *p, bool has_choice)
{
    struct node *first = parse(p, has_choice), *node = NULL;
    while (is_ok(p->j) && jinja_take_sign(p, ',')) {
        if (!node)
            node = jinja_node(p, SEQUENCE, first);
        node->constant.kind = TUPLE;
        if (p->at->kind == T_OUTPUT_END || p->at->kind == T_BLOCK_END ||
            jinja_is_sign(p, ')'))
            break;
        add_part(p, node, parse(p, has_choice));
    }
    return node ? node : first;
}

/* A name, name.attribute (of a namespace), or several in a tuple. */
struct node *jinja_parse_target(struct parser *p)
{
    struct node *first = NULL, *node = NULL;
    if (!jinja_enter(p->j))
        return NULL;
    do {
        struct node *part;
        if (node && !jinja_is_sign(p, '(') && p->at->kind != T_NAME)
            break; /* a trailing comma */
        if (jinja_take_sign(p, '(')) {
            part = jinja_parse_target(p);
            jinja_expect_sign(p, ')');
        } else {
            part = jinja_parse_name(p);
            if (jinja_take_sign(p, '.')) {
                part = jinja_node(p, ATTRIBUTE, part);
                part->constant = expect_name(p);
            }
        }
        if (!first)
            first = part;
        else
            add_part(p, node, part);
        if (jinja_is_sign(p, ',') && !node) {
            node = jinja_node(p, SEQUENCE, first);
            node->constant.kind = TUPLE;
        }
    } while (is_ok(p->j) && jinja_take_sign(p, ','));
    jinja_leave(p->j);
    return node ? node : first;
}
