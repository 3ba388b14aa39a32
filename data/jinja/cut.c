/* cut.c - a template into texts, expressions and statements. */
#include "data/jinja/internal.h"

#include "base/must.h"

#include <ctype.h>
#include <stdlib.h>
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
        struct jinja *j, struct jinja_template *t, enum jinja_item_kind kind,
        const char *text, size_t bytes)
{
    if ((kind == TEXT && bytes == 0) || !jinja_charge(j, 1, sizeof *t->items))
        return;
    if (t->count == t->capacity) {
        t->capacity = t->capacity ? 2 * t->capacity : 64;
        t->items = zd_must(
                realloc(t->items, (size_t)t->capacity * sizeof *t->items));
    }
    t->items[t->count++] =
            (struct jinja_item){.kind = kind, .text = text, .bytes = bytes};
}

/* The end of a tag, after strings in it; NULL: it has none. */
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

static void cut_text(struct jinja *j, struct jinja_template *t)
{
    const char *source = t->source;
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
        add_item(j, t, TEXT, source + begin, text);
        inner += *inner == '-' || *inner == '+';
        bool strips = end > inner && end[-1] == '-';
        bool keeps = end > inner && end[-1] == '+';
        size_t length = (size_t)(end - inner) - (strips || keeps);
        if (kind != '#')
            add_item(j, t, kind == '{' ? OUTPUT : STATEMENT, inner, length);
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
        add_item(j, t, TEXT, source + begin, bytes - begin);
}

static enum jinja_tag tag_of(struct jinja *j, const struct jinja_item *item)
{
    static const struct {
        const char *word;
        enum jinja_tag tag;
    } tags[] = {
            {"if", IF},
            {"elif", ELIF},
            {"else", ELSE},
            {"endif", ENDIF},
            {"for", FOR},
            {"endfor", ENDFOR},
            {"set", SET},
            {"generation", GENERATION},
            {"endgeneration", ENDGENERATION},
    };
    struct jinja_cursor c = {j, item->text, item->text + item->bytes};
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
        if (jinja_word(&c, tags[i].word))
            return tags[i].tag;
    return OTHER;
}

/* Which tag ends the part that each if, elif, else and for begins. */
static void link_blocks(struct jinja *j, struct jinja_template *t)
{
    struct {
        int part; /* the tag that began it */
        enum jinja_tag block;
    } open[JINJA_DEPTH_MAX];
    int depth = 0;
    for (int i = 0; i < t->count && j->result == JINJA_DONE; i++) {
        struct jinja_item *item = &t->items[i];
        item->tag = item->kind == STATEMENT ? tag_of(j, item) : OTHER;
        if (item->tag == IF || item->tag == FOR) {
            if (depth == JINJA_DEPTH_MAX) {
                jinja_too_deep(j);
                return;
            }
            open[depth].part = i;
            open[depth++].block = item->tag;
            continue;
        }
        bool is_end = item->tag == ENDIF || item->tag == ENDFOR;
        if (!is_end && item->tag != ELIF && item->tag != ELSE)
            continue;
        enum jinja_tag block = depth ? open[depth - 1].block : OTHER;
        if (block == OTHER || (item->tag == ENDIF && block != IF) ||
            (item->tag == ENDFOR && block != FOR)) {
            jinja_stop(
                    j, JINJA_UNKNOWN, "`%.*s`",
                    (int)(item->bytes > 40 ? 40 : item->bytes), item->text);
            return;
        }
        t->items[open[depth - 1].part].next = i;
        open[depth - 1].part = i;
        depth -= is_end;
    }
    if (depth)
        jinja_stop(j, JINJA_UNKNOWN, "a block without its end");
}

void jinja_cut(struct jinja *j, struct jinja_template *template)
{
    cut_text(j, template);
    link_blocks(j, template);
}
