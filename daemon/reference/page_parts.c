#include "daemon/reference/page_parts.h"

#include "base/file/fs.h"
#include "base/text_stream.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_MAX = 1 << 20 };

static enum zd_status put_page(
        FILE *stream, const char *path, const struct page_part *parts,
        size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        const char *begin = strstr(text, parts[i].begin);
        const char *line_end = begin ? strchr(begin, '\n') : NULL;
        const char *end = line_end ? strstr(line_end, parts[i].end) : NULL;
        if (!end)
            return ZD_FAIL(
                    ZD_ERR_DATA, "E0102", "%s has no lines `%s..` and `%s`",
                    path, parts[i].begin, parts[i].end);
        fwrite(text, 1, (size_t)(line_end + 1 - text), stream);
        parts[i].put(stream);
        text = end;
    }
    fputs(text, stream);
    return ZD_OK;
}

enum zd_status page_make(
        const char *path, const struct page_part *parts, size_t count,
        char **text_out)
{
    char *text, *page = NULL;
    size_t bytes = 0;
    ZD_TRY(fs_read_file(path, PAGE_MAX, &text, &bytes));
    FILE *stream = text_stream_open(&page, &bytes);
    enum zd_status status = put_page(stream, path, parts, count, text);
    fclose(stream);
    free(text);
    if (status != ZD_OK) {
        free(page);
        return status;
    }
    *text_out = page;
    return ZD_OK;
}
