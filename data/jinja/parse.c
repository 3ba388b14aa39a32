/* parse.c - parses a template's statements. */
#include "data/jinja/tree.h"

#include "base/must.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct jinja *j;
    const char *end, *at;
    struct token *tokens;
    size_t count, capacity;
    bool starts_line; /* the next byte starts a line */
};

static void add(
        struct lexer *l, enum token_kind kind, char op, struct value value)
{
    if (!jinja_charge(l->j, 1, 2 * sizeof *l->tokens))
        return;
    ZD_GROW(l->tokens, l->capacity, l->count + 1);
    l->tokens[l->count++] = (struct token){kind, op, l->j->line, value};
}

/* Advances to `to`, counting lines. */
static void pass(struct lexer *l, const char *to)
{
    jinja_read(l->j, (size_t)(to - l->at));
    for (; l->at < to; l->at++)
        l->j->line += *l->at == '\n';
}

static bool is_at(const struct lexer *l, const char *at, const char *mark)
{
    size_t length = strlen(mark);
    return (size_t)(l->end - at) >= length && memcmp(at, mark, length) == 0;
}

static const char *past_blanks(const struct lexer *l, const char *at)
{
    while (at < l->end && isspace((unsigned char)*at))
        at++;
    return at;
}

/* Adds the text before a tag; `sign` is the mark in the tag, `kind` its second
   character. */
static void add_text(struct lexer *l, const char *to, char kind, char sign)
{
    const char *begin = l->at, *end = to;
    if (sign == '-') {
        while (end > begin && isspace((unsigned char)end[-1]))
            end--;
    } else if (sign != '+' && kind && kind != '{') {
        while (end > begin && end[-1] != '\n' &&
               isspace((unsigned char)end[-1]))
            end--;
        if (end > begin ? end[-1] != '\n' : !l->starts_line)
            end = to;
    }
    if (end > begin)
        add(l, T_TEXT, 0, jinja_slice(begin, (size_t)(end - begin)));
    l->starts_line = to > begin && to[-1] == '\n';
    pass(l, to);
}

/* Skips the end of a tag of this kind and the white space that it strips;
 * false: the tag does not end here. */
static bool take_end(struct lexer *l, char kind)
{
    const char *at = l->at, mark[] = {kind == '{' ? '}' : kind, '}', '\0'};
    bool strips = at < l->end && *at == '-';
    bool keeps = at < l->end && *at == '+' && kind != '{';
    at += strips || keeps;
    if (!is_at(l, at, mark))
        return false;
    at += 2;
    if (strips)
        at = past_blanks(l, at);
    else if (!keeps && kind != '{' && at < l->end && *at == '\n')
        at++;
    l->starts_line = at[-1] == '\n';
    pass(l, at);
    return true;
}

/* --- in a tag ------------------------------------------------------------- */

/* Decodes an escape after its backslash, as in Python; an unknown one keeps its
 * backslash. */
static const char *unescape(
        struct lexer *l, const char *at, const char *end, unsigned char **out)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    const char *known = *at ? strchr(from, *at) : NULL;
    size_t digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    char number[9] = "";
    if (known) {
        *(*out)++ = (unsigned char)to[known - from];
        return at + 1;
    }
    if (*at == '\n')
        return at + 1;
    if (*at >= '0' && *at <= '7')
        jinja_unknown(l->j, "the escape \\%c in a string", *at);
    if (!digits) {
        *(*out)++ = '\\';
        *(*out)++ = (unsigned char)*at;
        return at + 1;
    }
    if ((size_t)(end - at) > digits)
        memcpy(number, at + 1, digits);
    uint32_t c = (uint32_t)strtoul(number, NULL, 16);
    if (strspn(number, "0123456789abcdefABCDEF") < digits || c > 0x10ffff ||
        (c >> 11) == 0x1b)
        jinja_fail(l->j, "a broken escape \\%c in a string", *at);
    else
        *out += utf8_write(*out, c);
    return at + 1 + (number[0] ? digits : 0);
}

static void add_string(struct lexer *l)
{
    char quote = *l->at;
    const char *begin = l->at + 1, *at = begin;
    bool is_plain = true;
    while (at < l->end && *at != quote) {
        is_plain &= *at != '\\';
        at += 1 + (*at == '\\' && at + 1 < l->end);
    }
    if (at >= l->end) {
        jinja_fail(l->j, "a string without its end");
        return;
    }
    struct value text = jinja_slice(begin, (size_t)(at - begin));
    if (!is_plain && jinja_charge(l->j, 0, text.bytes)) {
        unsigned char *out = jinja_alloc(l->j, text.bytes);
        text.text = (const char *)out;
        for (const char *from = begin; from < at;)
            if (*from == '\\')
                from = unescape(l, from + 1, at, &out);
            else
                *out++ = (unsigned char)*from++;
        text.bytes = (size_t)((const char *)out - text.text);
    }
    add(l, T_CONSTANT, 0, text);
    pass(l, at + 1);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

/* 12, 1.5, 1e3. */
static void add_number(struct lexer *l)
{
    static const char decimals[] = "0123456789";
    char *end;
    const char *at = l->at + strspn(l->at, decimals);
    bool is_real = at[0] == '.' && isdigit((unsigned char)at[1]);
    if (is_real)
        at += 1 + strspn(at + 1, decimals);
    size_t sign = *at ? strspn(at + 1, "+-") : 0;
    if ((*at | 32) == 'e' && sign < 2 && isdigit((unsigned char)at[1 + sign])) {
        is_real = true;
        at += 1 + sign + strspn(at + 1 + sign, decimals);
    }
    errno = 0;
    struct value value = is_real ? jinja_real(strtod(l->at, &end))
                                 : jinja_integer(strtoll(l->at, &end, 10));
    if (is_word(*at))
        jinja_unknown(l->j, "a number with letters or _ is not supported");
    else if (!is_real && errno)
        jinja_unknown(l->j, "a whole number of over 64 bits");
    add(l, T_CONSTANT, 0, value);
    pass(l, at);
}

static void add_sign(struct lexer *l)
{
    static const struct {
        const char *text;
        char op;
    } twos[] = {
            {"==", 'E'}, {"!=", 'N'}, {"<=", 'L'}, {">=", 'G'}, {"//", 'D'}};
    for (size_t i = 0; i < sizeof twos / sizeof twos[0]; i++)
        if (is_at(l, l->at, twos[i].text)) {
            add(l, T_SIGN, twos[i].op, jinja_slice(l->at, 2));
            l->at += 2;
            return;
        }
    if (is_at(l, l->at, "**"))
        jinja_unknown(l->j, "`**` is not supported");
    if (!*l->at || !strchr("+-/*%~[](){}<>=.:|,;", *l->at)) {
        jinja_fail(l->j, "unexpected `%.1s`", l->at);
        return;
    }
    add(l, T_SIGN, *l->at, jinja_slice(l->at, 1));
    l->at++;
}

/* The tokens of a tag up to its end, which is none within brackets. */
static void lex_tag(struct lexer *l, char kind)
{
    int open = 0;
    add(l, kind == '{' ? T_OUTPUT : T_BLOCK, 0, jinja_none());
    int line = l->j->line;
    while (is_ok(l->j)) {
        pass(l, past_blanks(l, l->at));
        if (l->at == l->end) {
            l->j->line = line;
            jinja_fail(l->j, "a tag without its end");
            return;
        }
        if (open == 0) {
            size_t before = l->count;
            add(l, kind == '{' ? T_OUTPUT_END : T_BLOCK_END, 0,
                jinja_slice(l->at, 2));
            if (take_end(l, kind))
                return;
            l->count = before;
        }
        if (*l->at == '"' || *l->at == '\'') {
            add_string(l);
        } else if (isdigit((unsigned char)*l->at)) {
            add_number(l);
        } else if (is_word(*l->at)) {
            const char *at = l->at;
            while (at < l->end && is_word(*at))
                at++;
            struct value name = jinja_slice(l->at, (size_t)(at - l->at));
            add(l, T_NAME, 0, name);
            pass(l, at);
        } else {
            open += strchr("([{", *l->at) != NULL;
            open -= strchr(")]}", *l->at) != NULL;
            add_sign(l);
            if (open < 0)
                jinja_fail(l->j, "a bracket that closes none");
        }
    }
}

/* Adds raw text up to {% endraw %}; false: not a raw tag. */
static bool lex_raw(struct lexer *l)
{
    static const char end[] = "endraw";
    struct lexer before = *l;
    int line = l->j->line;
    const char *name = past_blanks(l, l->at), *at = name + 3;
    if (!is_at(l, name, "raw"))
        return false;
    pass(l, past_blanks(l, at));
    if (!take_end(l, '%')) {
        *l = before;
        l->j->line = line;
        return false;
    }
    for (at = l->at; (at = memmem(at, (size_t)(l->end - at), "{%", 2)); at++) {
        char sign = at + 2 < l->end ? at[2] : 0;
        name = past_blanks(l, at + 2 + (sign == '-' || sign == '+'));
        if (!is_at(l, name, end))
            continue;
        add_text(l, at, '%', sign);
        pass(l, past_blanks(l, name + sizeof end - 1));
        if (take_end(l, '%'))
            return true;
    }
    jinja_fail(l->j, "a block without its end (%s)", end);
    return true;
}

static void lex_comment(struct lexer *l)
{
    const char *at = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
    if (!at) {
        jinja_fail(l->j, "a comment without its end");
        return;
    }
    pass(l, at - (at > l->at && (at[-1] == '-' || at[-1] == '+')));
    take_end(l, '#');
}

/* Splits a template's source into tokens, stripping white space as trim_blocks
 * and lstrip_blocks do. The last token is T_END. NULL: stopped. */
static struct token *lex(struct jinja *j, const char *source, size_t bytes)
{
    struct lexer l = {
            .j = j, .at = source, .end = source + bytes, .starts_line = true};
    j->line = 1;
    while (is_ok(j) && l.at < l.end) {
        const char *at = l.at;
        while (at < l.end &&
               !(at[0] == '{' && at + 1 < l.end && strchr("{%#", at[1])))
            at++;
        if (at == l.end) {
            add_text(&l, at, 0, 0);
            break;
        }
        char kind = at[1], sign = at + 2 < l.end ? at[2] : 0;
        bool is_signed = sign == '-' || sign == '+';
        add_text(&l, at, kind, sign);
        l.at += 2 + is_signed;
        if (kind == '#')
            lex_comment(&l);
        else if (kind != '%' || !lex_raw(&l))
            lex_tag(&l, kind);
    }
    add(&l, T_END, 0, jinja_none());
    if (is_ok(j))
        return l.tokens;
    free(l.tokens);
    return NULL;
}

/* --- statements ----------------------------------------------------------- */

/* Parses statements up to a tag in `ends`, names with blanks between, and stops
 * before its name; NULL: to the end of the template. */
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

/* Parses the end of a block's opening tag, its body and its closing tag. */
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

/* Parses a call block: its body is passed to the call as `caller`. */
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

/* Converts line ends to \n and drops the last one. NULL: not UTF-8. */
static char *normalized(struct jinja *j, const char *source, size_t *bytes_out)
{
    size_t bytes = strlen(source), used = 0;
    if (utf8_valid_prefix(source, bytes) < bytes ||
        !jinja_charge(j, 1 + bytes / 64, bytes)) {
        jinja_stop(j, JINJA_UNKNOWN, 0, "is not UTF-8");
        return NULL;
    }
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
    struct token *tokens = text ? lex(j, text, bytes) : NULL;
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
