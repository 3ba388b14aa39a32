/* page_parts.h - a page of docs/ of which parts are made: what stands between
 * the line that begins with `begin`, and `end`. What a person wrote around them
 * stays. */
#ifndef ZD_DAEMON_REFERENCE_PAGE_PARTS_H
#define ZD_DAEMON_REFERENCE_PAGE_PARTS_H

#include "base/status.h"

#include <stdio.h>

struct page_part {
    const char *begin, *end;
    void (*put)(FILE *stream);
};

/* The page at `path` with its parts made anew, in their order; the caller frees
 * *text_out. ZD_ERR_NO_INPUT, or ZD_ERR_DATA when a marker is missing. */
enum zd_status page_make(
        const char *path, const struct page_part *parts, size_t count,
        char **text_out);

#endif
