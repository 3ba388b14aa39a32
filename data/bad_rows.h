/* bad_rows.h - rows that data.on_bad_row = "skip" leaves out: how many, and the
 * first ones with the reason. Beside a cache file KEY.tokens, KEY.skipped keeps
 * the reasons, a line each; the count is in the cache file. */
#ifndef ZD_DATA_BAD_ROWS_H
#define ZD_DATA_BAD_ROWS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { BAD_ROWS_KEPT = 5, BAD_ROW_BYTES = 400 };

struct bad_rows { /* all zero: none */
    int64_t count;
    int kept;
    char rows[BAD_ROWS_KEPT][BAD_ROW_BYTES]; /* "data.jsonl:7: why" */
};

/* The thread's error is that of a row; it is cleared. */
void bad_rows_take(struct bad_rows *rows);
/* Those of a later unit; `from` has none afterwards. */
void bad_rows_append(struct bad_rows *rows, struct bad_rows *from);
/* Beside the cache file `path`. The reasons of an older one are read only as
 * far as they can be: they help people. */
enum zd_status bad_rows_save(const struct bad_rows *rows, const char *path);
void bad_rows_load(struct bad_rows *rows, const char *path);

#endif
