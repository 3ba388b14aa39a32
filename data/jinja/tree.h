/* tree.h - a parsed template: statements and their expressions. */
#pragma once

#include "data/jinja/internal.h"

enum node_kind {
    CONSTANT,
    NAME,      /* symbol */
    SEQUENCE,  /* a list or, by constant.kind, a tuple of the parts */
    MAPPING,   /* the parts alternate keys and values */
    ATTRIBUTE, /* part 0 . constant */
    ITEM,      /* part 0 [part 1] */
    SLICED,    /* part 0 [part 1 : part 2 : part 3], NULL where not given */
    CALL,      /* part 0 (other parts, named arguments) */
    FILTER,    /* part 0 | row(..) */
    TEST,      /* part 0 is row(..) */
    NOT,
    SIGN,    /* op part 0 */
    OPERATE, /* part 0 ops[1] part 1 ops[2] part 2 .. */
    CONCATENATE,
    COMPARE, /* laid out as OPERATE; compares neighbors */
    AND,
    OR,
    CHOICE, /* part 0 if part 1 else part 2 (or NULL) */
    BLOCK,  /* a macro with its scope */
};

struct node {
    enum node_kind kind;
    int line, count, named_count;
    int symbol; /* NAME's symbol; SIGN: + or - */
    struct value constant;
    const struct row *row; /* ATTRIBUTE: a method of some type, or NULL */
    const struct macro *macro;
    struct node **parts;
    char *ops;
    struct named {
        struct value name;
        struct node *value;
        int symbol; /* of a parameter */
    } * named;
};

enum statement_kind {
    TEXT,
    PRINT,
    IF,  /* `other` is the next alternative, of the same kind */
    FOR, /* `other` runs if there are no items */
    SET,
    SET_BLOCK,
    GENERATION,
    BREAK,
    CONTINUE,
};

struct macro {
    struct value name;
    int count;
    struct named *parameters; /* value NULL: no default */
    struct statement *body;
};

struct statement {
    enum statement_kind kind;
    int line;
    struct value text;
    struct node *value;  /* printed, condition, visited, set */
    struct node *target; /* for, set */
    struct node *only;   /* for: the condition after `if` */
    struct statement *body, *other, *next;
};

enum { SYMBOL_LOOP, SYMBOL_CALLER };

struct jinja_template {
    struct jinja memory; /* only its chunks are used */
    struct value *names; /* by symbol */
    int name_count;
    bool has_generation;
    struct statement *body;
};

/* --- tokens --------------------------------------------------------------- */

enum token_kind {
    T_END,
    T_TEXT,
    T_OUTPUT, /* {{ */
    T_OUTPUT_END,
    T_BLOCK, /* {% */
    T_BLOCK_END,
    T_NAME,
    T_CONSTANT, /* number or text */
    T_SIGN      /* op: its character; for two characters: == E, != N, <= L, >=
                   G, // D */
};

struct token {
    enum token_kind kind;
    char op;
    int line;
    struct value value; /* text, name, constant */
};

/* --- parse_expression.c --------------------------------------------------- */

struct parser {
    struct jinja *j;
    struct jinja_template *template;
    const struct token *at;
    int loops; /* loops around the statement */
};

bool jinja_is_sign(const struct parser *p, char op);
bool jinja_is_name(const struct parser *p, const char *name);
bool jinja_take_sign(struct parser *p, char op);
bool jinja_take_name(struct parser *p, const char *name);
void jinja_expect_sign(struct parser *p, char op);
/* Fails: the next token is not `wanted`. */
void jinja_unexpected(struct parser *p, const char *wanted);
int jinja_symbol(struct parser *p, struct value name);
struct node *jinja_node(
        struct parser *p, enum node_kind kind, struct node *part);
void jinja_add_named(
        struct parser *p, struct node *node, struct value name,
        struct node *value);
struct node *jinja_parse_expression(struct parser *p);
/* An expression or, with commas, a tuple; `has_choice`: may contain "if ..
 * else". */
struct node *jinja_parse_tuple(struct parser *p, bool has_choice);
struct node *jinja_parse_name(struct parser *p);
struct node *jinja_parse_target(struct parser *p);

/* --- evaluate.c, run.c ---------------------------------------------------- */

struct scope {
    struct scope *outer; /* NULL: the template's variables are next */
    struct binding *first;
};

struct closure { /* a macro and the scope of its definition */
    const struct macro *macro;
    struct scope *scope;
};

struct value jinja_evaluate(struct jinja *j, const struct node *node);
void jinja_bind(struct jinja *j, int symbol, struct value value);
struct scope *jinja_push(struct jinja *j, struct scope *outer);
struct value jinja_run_macro(
        struct jinja *j, const struct closure *closure,
        const struct arguments *given);
