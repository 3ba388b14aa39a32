/* cut.c - a template into texts, expressions and statements. */
#include "data/jinja/internal.h"

#include <ctype.h>
#include <string.h>

static size_t blanks_before(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && isspace((unsigned char)text[bytes - 1 - n]))
        n++;
    return n;
}

/* Spaces and tabs between the begin of a line and a tag of a block. */
static size_t indent_before(const char *source, size_t at)
{
    size_t n = 0;
    while (n < at && (source[at - 1 - n] == ' ' || source[at - 1 - n] == '\t'))
        n++;
    return n == at || source[at - 1 - n] == '\n' ? n : 0;
}

static void add_item(
        struct jinja *j, enum jinja_item_kind kind, const char *text,
        size_t bytes)
{
    if (kind == TEXT && bytes == 0)
        return;
    if (j->count == JINJA_ITEMS_MAX) {
        jinja_stop(
                j, JINJA_UNKNOWN, "a template of more than %d parts",
                JINJA_ITEMS_MAX);
        return;
    }
    j->items[j->count++] = (struct jinja_item){kind, text, bytes};
}

/* The end of a tag, behind strings in it; NULL: it has none. */
static const char *tag_end(const char *at, char kind)
{
    char quote = 0;
    for (; *at; at++) {
        if (quote && *at == '\\' && at[1])
            at++;
        else if (quote)
            quote = *at == quote ? 0 : quote;
        else if (kind != '#' && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (at[1] == '}' && *at == (kind == '{' ? '}' : kind))
            return at;
    }
    return NULL;
}

void jinja_cut(struct jinja *j, const char *source)
{
    size_t bytes = strlen(source), begin = 0, at = 0;
    if (bytes && source[bytes - 1] == '\n')
        bytes--; /* Jinja takes one away */
    while (at + 1 < bytes && j->result == JINJA_DONE) {
        char kind = source[at + 1];
        if (source[at] != '{' || (kind != '{' && kind != '%' && kind != '#')) {
            at++;
            continue;
        }
        const char *inner = source + at + 2;
        const char *end = tag_end(inner, kind);
        if (!end) {
            jinja_stop(j, JINJA_UNKNOWN, "a tag without its end");
            return;
        }
        size_t text = at - begin;
        if (*inner == '-')
            text -= blanks_before(source + begin, text);
        else if (kind != '{' && *inner != '+') {
            size_t indent = indent_before(source, at);
            text -= indent < text ? indent : text;
        }
        add_item(j, TEXT, source + begin, text);
        inner += *inner == '-' || *inner == '+';
        bool strips = end > inner && end[-1] == '-';
        bool keeps = end > inner && end[-1] == '+';
        size_t length = (size_t)(end - inner) - (strips || keeps);
        if (kind != '#')
            add_item(j, kind == '{' ? OUTPUT : STATEMENT, inner, length);
        begin = (size_t)(end - source) + 2;
        if (strips)
            while (begin < bytes && isspace((unsigned char)source[begin]))
                begin++;
        else if (
                kind != '{' && !keeps && begin < bytes && source[begin] == '\n')
            begin++;
        at = begin;
    }
    if (begin < bytes)
        add_item(j, TEXT, source + begin, bytes - begin);
}
