/* parse.c - a template's statements. */
#include "data/jinja/tree.h"

#include "base/must.h"

#include <stdlib.h>

/* The statements up to the first tag of `ends`, words between blanks, whose
 * name is not passed; NULL: to the end of the template. */
static struct statement *parse_body(struct parser *p, const char *ends);

static struct statement *statement(struct parser *p, enum statement_kind kind)
{
    struct statement *s = jinja_alloc(p->j, sizeof *s);
    *s = (struct statement){.kind = kind, .line = p->at->line};
    return s;
}

static void end_tag(struct parser *p)
{
    if (p->at->kind != T_BLOCK_END)
        jinja_unexpected(p, "the end of the tag");
    else
        p->at++;
}

static bool is_one_of_words(const struct parser *p, const char *words)
{
    while (words && *words) {
        size_t length = strcspn(words, " ");
        if (p->at->kind == T_NAME && p->at->value.bytes == length &&
            memcmp(p->at->value.text, words, length) == 0)
            return true;
        words += length + (words[length] == ' ');
    }
    return false;
}

/* The body of a block whose begin tag is to end here, and its end tag. */
static struct statement *block_body(struct parser *p, const char *end)
{
    end_tag(p);
    struct statement *body = parse_body(p, end);
    p->at += is_ok(p->j);
    return body;
}

static struct statement *parse_if(struct parser *p)
{
    struct statement *first = statement(p, IF), *s = first;
    s->value = jinja_parse_tuple(p, false);
    for (;;) {
        end_tag(p);
        s->body = parse_body(p, s->value ? "elif else endif" : "endif");
        if (!is_ok(p->j) || jinja_take_name(p, "endif"))
            return first;
        s = s->other = statement(p, IF);
        if (jinja_take_name(p, "elif"))
            s->value = jinja_parse_tuple(p, false);
        else
            p->at++;
    }
}

static struct statement *parse_for(struct parser *p)
{
    struct statement *s = statement(p, FOR);
    s->target = jinja_parse_target(p);
    if (!jinja_take_name(p, "in"))
        jinja_unexpected(p, "`in`");
    s->value = jinja_parse_tuple(p, false);
    if (jinja_take_name(p, "if"))
        s->only = jinja_parse_expression(p);
    if (jinja_is_name(p, "recursive"))
        jinja_unknown(p->j, "a recursive loop is not supported");
    end_tag(p);
    p->loops++;
    s->body = parse_body(p, "else endfor");
    p->loops--;
    if (jinja_take_name(p, "else"))
        s->other = block_body(p, "endfor");
    else
        p->at += is_ok(p->j);
    return s;
}

static struct statement *parse_set(struct parser *p)
{
    struct statement *s = statement(p, SET);
    s->target = jinja_parse_target(p);
    if (jinja_take_sign(p, '=')) {
        s->value = jinja_parse_tuple(p, true);
        return s;
    }
    s->kind = SET_BLOCK;
    if (jinja_is_sign(p, '|'))
        jinja_unknown(p->j, "a block of set with filters is not supported");
    s->body = block_body(p, "endset");
    return s;
}

static void parse_parameters(struct parser *p, struct macro *macro)
{
    jinja_expect_sign(p, '(');
    while (is_ok(p->j) && !jinja_take_sign(p, ')')) {
        size_t count = (size_t)macro->count;
        struct named *all = jinja_extend(
                p->j, macro->parameters, count * sizeof *all, sizeof *all);
        struct node *name = jinja_parse_name(p), *value = NULL;
        if (!all || !is_ok(p->j))
            return;
        macro->parameters = all;
        macro->count++;
        if (jinja_take_sign(p, '='))
            value = jinja_parse_expression(p);
        all[count] = (struct named){name->constant, value, name->symbol};
        if (!jinja_is_sign(p, ')'))
            jinja_expect_sign(p, ',');
    }
}

static struct node *parse_block(
        struct parser *p, struct macro *macro, const char *end)
{
    struct node *node = jinja_node(p, BLOCK, NULL);
    int loops = p->loops;
    node->macro = macro;
    p->loops = 0;
    macro->body = block_body(p, end);
    p->loops = loops;
    return node;
}

static struct statement *parse_macro(struct parser *p)
{
    struct statement *s = statement(p, SET);
    struct macro *macro = jinja_alloc(p->j, sizeof *macro);
    s->target = jinja_parse_name(p);
    *macro = (struct macro){.name = s->target->constant};
    parse_parameters(p, macro);
    s->value = parse_block(p, macro, "endmacro");
    return s;
}

/* A call to which the block is given as `caller`. */
static struct statement *parse_call(struct parser *p)
{
    struct statement *s = statement(p, PRINT);
    struct macro *macro = jinja_alloc(p->j, sizeof *macro);
    *macro = (struct macro){.name = jinja_word("caller")};
    if (jinja_is_sign(p, '('))
        parse_parameters(p, macro);
    s->value = jinja_parse_expression(p);
    if (is_ok(p->j) && s->value->kind != CALL)
        jinja_unexpected(p, "a call");
    if (is_ok(p->j))
        jinja_add_named(
                p, s->value, macro->name, parse_block(p, macro, "endcall"));
    return s;
}

static struct statement *parse_generation(struct parser *p)
{
    struct statement *s = statement(p, GENERATION);
    p->template->has_generation = true;
    s->body = block_body(p, "endgeneration");
    return s;
}

static struct statement *parse_leave(struct parser *p)
{
    bool is_break = jinja_is_text(p->at[-1].value, "break");
    if (p->loops == 0)
        jinja_fail(
                p->j, "`%s` outside of a loop",
                is_break ? "break" : "continue");
    return statement(p, is_break ? BREAK : CONTINUE);
}

static const struct {
    const char *name;
    struct statement *(*parse)(struct parser *p);
} tags[] = {
        {"if", parse_if},       {"for", parse_for},
        {"set", parse_set},     {"macro", parse_macro},
        {"call", parse_call},   {"generation", parse_generation},
        {"break", parse_leave}, {"continue", parse_leave},
};

/* After "{%". */
static struct statement *parse_tag(struct parser *p)
{
    struct value name = p->at->value;
    p->j->line = p->at->line;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (jinja_take_name(p, tags[i].name)) {
            struct statement *s = NULL;
            if (jinja_enter(p->j)) {
                s = tags[i].parse(p);
                jinja_leave(p->j);
            }
            if (is_ok(p->j))
                end_tag(p);
            return s;
        }
    if (p->at->kind != T_NAME)
        jinja_unexpected(p, "the name of a tag");
    else if (
            strncmp(name.text, "end", 3) == 0 || jinja_is_name(p, "else") ||
            jinja_is_name(p, "elif"))
        jinja_unexpected(p, "another tag");
    else
        jinja_unknown(
                p->j, "{%% %.*s %%} is not supported",
                (int)(name.bytes > 60 ? 60 : name.bytes), name.text);
    return NULL;
}

static struct statement *parse_body(struct parser *p, const char *ends)
{
    struct statement *first = NULL, **next = &first;
    int line = p->j->line;
    while (is_ok(p->j) && p->at->kind != T_END) {
        struct statement *s;
        if (p->at->kind == T_TEXT) {
            s = statement(p, TEXT);
            s->text = p->at++->value;
        } else if (p->at->kind == T_OUTPUT) {
            p->at++;
            s = statement(p, PRINT);
            s->value = jinja_parse_tuple(p, true);
            if (p->at->kind != T_OUTPUT_END)
                jinja_unexpected(p, "}}");
            else
                p->at++;
        } else {
            p->at++;
            if (is_one_of_words(p, ends))
                return first;
            s = parse_tag(p);
        }
        *next = s;
        next = s ? &s->next : next;
    }
    if (ends) {
        p->j->line = line;
        jinja_fail(p->j, "a block without its end (%s)", ends);
    }
    return first;
}

/* --- a template as a whole ------------------------------------------------ */

/* Its lines end with \n, the last with nothing. NULL: is not UTF-8. */
static char *normalized(struct jinja *j, const char *source, size_t *bytes_out)
{
    size_t bytes = strlen(source), used = 0;
    json_t *check = json_stringn(source, bytes);
    if (!check || !jinja_charge(j, 1 + bytes / 64, bytes)) {
        json_decref(check);
        jinja_stop(j, JINJA_UNKNOWN, 0, "is not UTF-8");
        return NULL;
    }
    json_decref(check);
    char *text = jinja_alloc(j, bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        if (source[i] != '\r' || source[i + 1] != '\n')
            text[used++] = source[i] == '\r' ? '\n' : source[i];
    used -= used > 0 && text[used - 1] == '\n';
    text[used] = '\0';
    *bytes_out = used;
    return text;
}

enum jinja_result jinja_parse(
        const char *source, struct jinja_template **out, char *why,
        size_t why_bytes)
{
    struct jinja_template *t = zd_must(calloc(1, sizeof *t));
    struct jinja *j = &t->memory;
    struct parser p = {.j = j, .template = t};
    size_t bytes = 0;
    j->left = jinja_budget_whole(JINJA_NESTING_MAX);
    j->why = why;
    j->why_bytes = why_bytes;
    why[0] = '\0';
    const char *text = normalized(j, source, &bytes);
    struct token *tokens = text ? jinja_lex(j, text, bytes) : NULL;
    jinja_symbol(&p, jinja_word("loop")); /* SYMBOL_LOOP */
    jinja_symbol(&p, jinja_word("caller"));
    if (tokens) {
        p.at = tokens;
        t->body = parse_body(&p, NULL);
    }
    free(tokens);
    enum jinja_result result = j->result;
    j->why = NULL; /* the caller's */
    if (result == JINJA_DONE)
        *out = t;
    else
        jinja_free(t);
    return result;
}

bool jinja_has_generation(const struct jinja_template *template)
{
    return template->has_generation;
}

void jinja_free(struct jinja_template *template)
{
    if (!template)
        return;
    jinja_release(&template->memory);
    free(template);
}
