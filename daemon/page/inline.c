/* inline.c - see inline.h. */
#include "daemon/page/inline.h"

#include "daemon/page/page.h"

#include <assert.h>
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

/* Bytes of `json` escaped; written to `out` unless that is NULL. */
static size_t escape(char *out, const char *json)
{
    size_t bytes = 0, length;
    for (const char *at = json; *at; at += length) {
        const char *text = escape_of(at, &length);
        size_t count = text ? strlen(text) : length;
        if (out)
            memcpy(out + bytes, text ? text : at, count);
        bytes += count;
    }
    return bytes;
}

enum zd_status page_inline(
        const json_t *data, char **html_out, size_t *bytes_out)
{
    const char *place = strstr(page_html, marker);
    assert(place);
    size_t before = (size_t)(place - page_html) + strlen(marker);
    size_t after = page_html_bytes - before;
    char *json = json_dumps(data, JSON_COMPACT);
    size_t middle = json ? escape(NULL, json) : 0;
    char *html = json ? malloc(before + middle + after + 1) : NULL;
    if (!html) {
        free(json);
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E1100", "no memory for a report of %zu bytes",
                before + middle + after);
    }
    memcpy(html, page_html, before);
    escape(html + before, json);
    memcpy(html + before + middle, page_html + before, after + 1);
    free(json);
    *html_out = html;
    *bytes_out = before + middle + after;
    return ZD_OK;
}
