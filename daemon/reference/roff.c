#include "daemon/reference/roff.h"

#include "zd_config.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Of this version: a date of the build would make every build another one. */
#define PAGE_DATE "2026-11-21"

static void put_char(FILE *stream, char c)
{
    switch (c) {
    case '\\':
        fputs("\\e", stream);
        break;
    case '-':
        fputs("\\-", stream);
        break;
    case '\'':
        fputs("\\(aq", stream);
        break;
    case '^':
        fputs("\\(ha", stream);
        break;
    case '~':
        fputs("\\(ti", stream);
        break;
    default:
        fputc(c, stream);
    }
}

void roff_inline(FILE *stream, const char *text)
{
    if (text[0] == '.')
        fputs("\\&", stream);
    for (const char *c = text; *c; c++)
        put_char(stream, *c);
}

void roff_text(FILE *stream, const char *text)
{
    bool is_bold = false;
    if (text[0] == '.')
        fputs("\\&", stream);
    for (const char *c = text; *c; c++) {
        if (*c == '`') {
            is_bold = !is_bold;
            fputs(is_bold ? "\\fB" : "\\fR", stream);
        } else
            put_char(stream, *c);
    }
    fputc('\n', stream);
}

void roff_begin(FILE *stream, const char *name, int section)
{
    fprintf(stream, ".\\\" Written by zerod-docs from the tables of zerod.\n"
                    ".TH ");
    for (const char *c = name; *c; c++)
        fputc(toupper((unsigned char)*c), stream);
    fprintf(stream, " %d " PAGE_DATE " \"zerod %s\"\n", section, ZD_VERSION);
}

void roff_heading(FILE *stream, const char *title)
{
    fprintf(stream, ".SH %s\n", title);
}

void roff_subheading(FILE *stream, const char *title)
{
    fputs(".SS ", stream);
    roff_inline(stream, title);
    fputc('\n', stream);
}

void roff_example(FILE *stream, const char *lines)
{
    fputs(".nf\n", stream);
    while (*lines) {
        size_t length = strcspn(lines, "\n");
        if (lines[0] == '.')
            fputs("\\&", stream);
        for (size_t i = 0; i < length; i++)
            put_char(stream, lines[i]);
        fputc('\n', stream);
        lines += length + (lines[length] == '\n');
    }
    fputs(".fi\n", stream);
}
