/* match.h - the files that a path or a pattern of an entry names. */
#pragma once

#include "base/file/json.h"

/* `pattern` is the name of a file that exists, whatever characters it has, or a
 * pattern: * ? [abc] {a,b} and, by itself between slashes, ** for folders at
 * any depth, none included. Links to folders are not followed by it, and names
 * that begin with a dot must be spelled out. No match is not an error.
 * ZD_ERR_CONFIG for a ** that is only part of a name or of a brace.
 * *paths_out, the caller's: a list of strings in bytewise order, each once. */
enum zd_status match_files(const char *pattern, json_t **paths_out);
/* A name as a pattern that it alone matches; false: it does not fit. */
bool match_escape(const char *name, char *out, size_t out_bytes);
