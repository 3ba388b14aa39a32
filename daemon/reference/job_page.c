#include "daemon/reference/job_page.h"

#include "base/text_stream.h"
#include "daemon/reference/key_text.h"
#include "daemon/reference/page_parts.h"

#include <stdlib.h>
#include <string.h>

/* Text of a page: what it names below docs/ is its neighbor, and a bar inside
 * a table would end the cell. */
static void put_text(FILE *stream, const char *text)
{
    static const char docs[] = "docs/";
    for (const char *c = text; *c;) {
        if (strncmp(c, docs, sizeof docs - 1) == 0) {
            const char *name = c + sizeof docs - 1;
            int length = (int)strspn(name, "abcdefghijklmnopqrstuvwxyz_.");
            length -= name[length - 1] == '.'; /* of the sentence */
            fprintf(stream, "[%.*s](%.*s)", length, name, length, name);
            c = name + length;
            continue;
        }
        fprintf(stream, *c == '|' ? "\\%c" : "%c", *c);
        c++;
    }
}

static void put_cell(
        FILE *stream, void (*put)(FILE *, const struct schema_key *),
        const struct schema_key *key)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *cell = text_stream_open(&text, &bytes);
    put(cell, key);
    fclose(cell);
    fputs("| ", stream);
    put_text(stream, text);
    fputc(' ', stream);
    free(text);
}

static void put_section(FILE *stream, const char *section)
{
    const char *note = schema_section_note(section);
    fputs("\n### ", stream);
    key_put_section(stream, section);
    if (note) {
        fputs("\n\n", stream);
        put_text(stream, note);
        fputc('.', stream);
    }
    fputs("\n\n| key | accepts | default | |\n|---|---|---|---|\n", stream);
}

static void put_keys(FILE *stream)
{
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (key_begins_section(key))
            put_section(stream, key->section);
        if (!key_is_available(key))
            continue;
        fprintf(stream, "| `%s` ", key->name);
        put_cell(stream, key_put_accepts, key);
        put_cell(stream, key_put_default, key);
        put_cell(stream, key_put_help, key);
        fputs("|\n", stream);
    }
    fputc('\n', stream);
}

static void put_missing(FILE *stream)
{
    const char *section = NULL;
    fputs("\n| section | keys |\n|---|---|\n", stream);
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        if (key_is_available(key))
            continue;
        if (section && strcmp(section, key->section) == 0) {
            fprintf(stream, ", `%s`", key->name);
            continue;
        }
        fprintf(stream, "%s| [%s] | `%s`", section ? " |\n" : "", key->section,
                key->name);
        section = key->section;
    }
    fputs(section ? " |\n\n" : "\n", stream);
}

enum zd_status job_page_make(const char *path, char **text_out)
{
    static const struct page_part parts[] = {
            {"<!-- keys: ", "<!-- end of keys -->", put_keys},
            {"<!-- missing: ", "<!-- end of missing -->", put_missing}};
    return page_make(path, parts, sizeof parts / sizeof parts[0], text_out);
}
