/* inspect_html.c - what `data inspect` finds, as a page. */
#include "data/inspect.h"

#include <stdlib.h>
#include <string.h>

static const char head[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
        "<title>zerod data inspect</title>\n"
        "<style>body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;"
        "padding:0 1em}td{padding:0 1em 0 0;vertical-align:top}"
        "pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid "
        "#ccc;padding:.8em}.t{background:#cdeccd}.m{color:#777}"
        "hr{border:0;border-top:1px dashed #999}</style>\n"
        "<h1>Data</h1>\n<p><span class=\"t\">The loss counts this text.</span> "
        "<span class=\"m\">It does not count this text.</span> A dashed line "
        "is where a document begins.</p>\n";

/* Text of the data: it can contain anything. */
static void put(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '&' || byte == '<' || byte == '>' || byte == '"')
            fprintf(out, "&#%d;", byte);
        else if (byte < ' ' && byte != '\n' && byte != '\t')
            fprintf(out, "\\x%02x", byte); /* HTML has no such character */
        else
            fputc(byte, out);
    }
}

static void put_json(FILE *out, const json_t *value)
{
    char *text;
    if (json_is_string(value)) {
        put(out, json_string_value(value), json_string_length(value));
        return;
    }
    text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (text)
        put(out, text, strlen(text));
    free(text);
}

static void put_totals(FILE *out, const json_t *json)
{
    const char *key;
    json_t *value, *note, *row;
    size_t i;
    fputs("<table>\n", out);
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (json_is_array(value) || json_is_object(value) ||
            json_is_null(value))
            continue;
        fprintf(out, "<tr><td>%s<td>", key);
        put_json(out, value);
        fputc('\n', out);
    }
    json_object_foreach(json_object_get(json, "rows"), key, note)
    {
        json_array_foreach(json_object_get(note, "first"), i, row)
        {
            fprintf(out, "<tr><td>row: %s<td>", key);
            put_json(out, row);
            fputc('\n', out);
        }
    }
    fputs("</table>\n", out);
}

static void put_piece(FILE *out, const json_t *piece)
{
    bool is_trained = json_is_true(json_object_get(piece, "trained"));
    const json_t *ids = json_object_get(piece, "ids");
    if (json_object_get(piece, "begins_document"))
        fputs("<hr>", out);
    fprintf(out, "<span class=\"%c\"", is_trained ? 't' : 'm');
    if (ids) {
        fputs(" title=\"", out);
        put_json(out, ids);
        fputc('"', out);
    }
    fputc('>', out);
    put_json(out, json_object_get(piece, "text"));
    fputs("</span>", out);
}

void inspect_html(FILE *out, const json_t *json)
{
    json_t *sample, *piece;
    size_t i, p;
    fputs(head, out);
    put_totals(out, json);
    json_array_foreach(json_object_get(json, "shown"), i, sample)
    {
        fprintf(out, "<h2>Sample %lld: %lld tokens, %lld trained</h2>\n<pre>",
                (long long)json_integer_at(sample, "sample"),
                (long long)json_integer_at(sample, "tokens"),
                (long long)json_integer_at(sample, "trained"));
        json_array_foreach(json_object_get(sample, "pieces"), p, piece)
                put_piece(out, piece);
        fputs("</pre>\n", out);
    }
    fputs("</html>\n", out);
}
