/* lex.c - a template's source as tokens, white space as with trim_blocks and
 * lstrip_blocks. */
#include "data/jinja/tree.h"

#include "base/must.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct jinja *j;
    const char *source, *end, *at;
    struct token *tokens;
    size_t count, capacity;
    bool starts_line; /* what is next begins a line */
};

static void add(
        struct lexer *l, enum token_kind kind, char op, struct value value)
{
    if (!jinja_charge(l->j, 1, 2 * sizeof *l->tokens))
        return;
    l->tokens =
            zd_grow(l->tokens, &l->capacity, l->count + 1, sizeof *l->tokens);
    l->tokens[l->count++] = (struct token){kind, op, l->j->line, value};
}

/* Past these bytes, whose lines count. */
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

/* Text up to a tag; `sign` is the mark in the tag, `kind` its second character.
 */
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

/* Past the end of a tag that began with this character, and past the white
 * space that it takes; false: no such end is here. */
static bool take_end(struct lexer *l, char kind, bool trims)
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
    else if (trims && !keeps && kind != '{' && at < l->end && *at == '\n')
        at++;
    l->starts_line = at[-1] == '\n';
    pass(l, at);
    return true;
}

/* --- in a tag ------------------------------------------------------------- */

static size_t write_utf8(char *out, uint32_t c)
{
    if (c < 0x80)
        return out[0] = (char)c, 1;
    size_t tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[tail] | c >> 6 * tail);
    for (size_t i = 1; i <= tail; i++)
        out[i] = (char)(0x80 | (c >> 6 * (tail - i) & 0x3f));
    return tail + 1;
}

/* An escape after its backslash, as in Python; what is none keeps both. */
static const char *unescape(
        struct lexer *l, const char *at, const char *end, char **out)
{
    static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
    const char *known = *at ? strchr(from, *at) : NULL;
    int digits = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (known) {
        *(*out)++ = to[known - from];
        return at + 1;
    }
    if (*at == '\n')
        return at + 1;
    int base = digits ? 16 : 8;
    const char *digit = at + (digits > 0);
    uint32_t c = 0;
    int read = 0;
    for (; read < (digits ? digits : 3) && digit < end; read++, digit++) {
        int value = isdigit((unsigned char)*digit)    ? *digit - '0'
                    : isxdigit((unsigned char)*digit) ? (*digit | 32) - 'a' + 10
                                                      : 99;
        if (value >= base)
            break;
        c = c * (uint32_t)base + (uint32_t)value;
    }
    if (digits ? read < digits || c > 0x10ffff || (c >> 11) == 0x1b
               : read == 0) {
        if (digits)
            jinja_fail(l->j, "a broken escape \\%c in a string", *at);
        *(*out)++ = '\\';
        *(*out)++ = *at;
        return at + 1;
    }
    *out += write_utf8(*out, c);
    return digit;
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
        char *out = jinja_alloc(l->j, text.bytes);
        text.text = out;
        for (const char *from = begin; from < at;)
            if (*from == '\\')
                from = unescape(l, from + 1, at, &out);
            else
                *out++ = *from++;
        text.bytes = (size_t)(out - text.text);
    }
    add(l, T_CONSTANT, 0, text);
    pass(l, at + 1);
}

/* Digits with one _ between them, as in Python. */
static void add_number(struct lexer *l)
{
    char digits[64], *end;
    size_t used = 0;
    bool is_real = false;
    const char *at = l->at;
    int base = *at == '0' && at + 1 < l->end && at[1] && strchr("xXoObB", at[1])
                       ? (at[1] | 32) == 'x'   ? 16
                         : (at[1] | 32) == 'o' ? 8
                                               : 2
                       : 10;
    at += base == 10 ? 0 : 2;
    for (; at < l->end && used < sizeof digits - 1; at++) {
        bool is_next = at + 1 < l->end && isdigit((unsigned char)at[1]);
        if (base == 10 && !is_real && *at == '.' && is_next)
            is_real = true;
        else if (
                base == 10 && (*at | 32) == 'e' &&
                (is_next ||
                 (at + 2 < l->end && (at[1] == '+' || at[1] == '-') &&
                  isdigit((unsigned char)at[2])))) {
            is_real = true;
            digits[used++] = *at++;
        } else if (
                base == 16 ? !isxdigit((unsigned char)*at) && *at != '_'
                           : !isdigit((unsigned char)*at) && *at != '_')
            break;
        if (*at != '_')
            digits[used++] = *at;
    }
    digits[used] = '\0';
    errno = 0;
    struct value value = is_real ? jinja_real(strtod(digits, &end))
                                 : jinja_integer(strtoll(digits, &end, base));
    if (!is_real && errno)
        jinja_unknown(l->j, "a whole number of over 64 bits");
    else if (end == digits || *end || used == sizeof digits - 1)
        jinja_fail(l->j, "a broken number %s", digits);
    add(l, T_CONSTANT, 0, value);
    pass(l, at);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

static void add_sign(struct lexer *l)
{
    static const struct {
        const char *text;
        char op;
    } twos[] = {{"==", 'E'}, {"!=", 'N'}, {"<=", 'L'},
                {">=", 'G'}, {"//", 'D'}, {"**", 'P'}};
    for (size_t i = 0; i < sizeof twos / sizeof twos[0]; i++)
        if (is_at(l, l->at, twos[i].text)) {
            add(l, T_SIGN, twos[i].op, jinja_slice(l->at, 2));
            l->at += 2;
            return;
        }
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
    while (l->j->result == JINJA_DONE) {
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
            if (take_end(l, kind, true))
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
            add(l, T_NAME, 0, jinja_slice(l->at, (size_t)(at - l->at)));
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

static void lex_comment(struct lexer *l)
{
    int line = l->j->line;
    const char *at = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
    if (!at) {
        l->j->line = line;
        jinja_fail(l->j, "a comment without its end");
        return;
    }
    pass(l, at - (at > l->at && (at[-1] == '-' || at[-1] == '+')));
    take_end(l, '#', true);
}

/* {% NAME %} and nothing else, its begin passed; false: it is another tag. */
static bool take_bare(struct lexer *l, const char *name, bool trims)
{
    const char *before = l->at;
    int line = l->j->line;
    pass(l, past_blanks(l, l->at));
    if (is_at(l, l->at, name)) {
        pass(l, past_blanks(l, l->at + strlen(name)));
        if (take_end(l, '%', trims))
            return true;
    }
    l->at = before;
    l->j->line = line;
    return false;
}

static void lex_raw(struct lexer *l)
{
    const char *begin = l->at, *at = begin;
    while ((at = memmem(at, (size_t)(l->end - at), "{%", 2))) {
        struct lexer tag = *l;
        struct jinja scratch = *l->j; /* lines are counted below */
        tag.j = &scratch;
        tag.at = at + 2;
        char sign = tag.at < l->end ? *tag.at : 0;
        tag.at += sign == '-' || sign == '+';
        if (!jinja_read(l->j, 64 + (size_t)(at - begin) / 64))
            return;
        if (take_bare(&tag, "endraw", true)) {
            add_text(l, at, '%', sign);
            pass(l, tag.at);
            l->starts_line = tag.starts_line;
            return;
        }
        at += 2;
    }
    jinja_fail(l->j, "{%% raw %%} without its end");
}

struct token *jinja_lex(struct jinja *j, const char *source, size_t bytes)
{
    struct lexer l = {
            .j = j,
            .source = source,
            .at = source,
            .end = source + bytes,
            .starts_line = true};
    j->line = 1;
    while (j->result == JINJA_DONE && l.at < l.end) {
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
        else if (kind == '%' && take_bare(&l, "raw", false))
            lex_raw(&l);
        else
            lex_tag(&l, kind);
    }
    add(&l, T_END, 0, jinja_none());
    if (j->result == JINJA_DONE)
        return l.tokens;
    free(l.tokens);
    return NULL;
}
