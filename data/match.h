/* match.h - the files that a path or a pattern of an entry names. */
#pragma once

#include "base/status.h"

struct match_list {
    char **paths; /* owned; in bytewise order, each once */
    int count;
    size_t capacity;
};

/* `pattern` is the name of a file that exists, whatever characters it has, or a
 * pattern: * ? [abc] {a,b} and, by itself between slashes, ** for folders at
 * any depth, none included. Links to folders are not followed by it, and names
 * that begin with a dot must be spelled out. No match is not an error.
 * ZD_ERR_CONFIG for a ** that is only part of a name or of a brace. */
enum zd_status match_files(const char *pattern, struct match_list *list_out);
/* A name as a pattern that it alone matches; false: it does not fit. */
bool match_escape(const char *name, char *out, size_t out_bytes);
void match_free(struct match_list *list);
