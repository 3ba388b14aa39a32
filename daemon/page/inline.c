#include "daemon/page/page.h"

#include "base/must.h"
#include "base/text_stream.h"

#include <string.h>

static const char marker[] =
        "<script id=\"zerod-data\" type=\"application/json\">";

char *page_inline(const json_t *data, size_t *bytes_out)
{
    const char *place = strstr(page_html, marker) + strlen(marker);
    ZD_FREED char *json = zd_must(json_dumps(data, JSON_COMPACT));
    char *html;
    FILE *out = text_stream_open(&html, bytes_out);
    fwrite(page_html, 1, (size_t)(place - page_html), out);
    for (const char *at = json; *at; at++) /* JSON has `<` only in strings */
        if (*at == '<')
            fputs("\\u003c", out);
        else
            fputc(*at, out);
    fputs(place, out);
    fclose(out);
    return html;
}
