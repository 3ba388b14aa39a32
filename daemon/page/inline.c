#include "daemon/page/page.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

static const char marker[] =
        "<script id=\"zerod-data\" type=\"application/json\">";

/* How the character at `at` is written inside the element; NULL: as it is.
 * *length_out: its bytes. JSON has these only inside strings. */
static const char *escape_of(const char *at, size_t *length_out)
{
    *length_out = 1;
    if (*at == '<')
        return "\\u003c";
    if (strncmp(at, "\xe2\x80\xa8", 3) != 0 &&
        strncmp(at, "\xe2\x80\xa9", 3) != 0)
        return NULL;
    *length_out = 3;
    return at[2] == '\xa8' ? "\\u2028" : "\\u2029";
}

char *page_inline(const json_t *data, size_t *bytes_out)
{
    const char *place = strstr(page_html, marker) + strlen(marker);
    ZD_FREED char *json = zd_must(json_dumps(data, JSON_COMPACT));
    char *html;
    size_t length;
    FILE *out = text_stream_open(&html, bytes_out);
    fwrite(page_html, 1, (size_t)(place - page_html), out);
    for (const char *at = json; *at; at += length) {
        const char *text = escape_of(at, &length);
        fwrite(text ? text : at, 1, text ? strlen(text) : length, out);
    }
    fputs(place, out);
    fclose(out);
    return html;
}
