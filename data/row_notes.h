/* row_notes.h - what a user is told about rows: how many data.on_bad_row =
 * "skip" leaves out, have what the chat template ignores, train nothing or
 * contain special tokens; and the first ones. Beside a cache file KEY.tokens,
 * KEY.rows keeps this as JSON. */
#pragma once

#include "base/file/json.h"

enum row_note {
    ROW_BAD,       /* left out */
    ROW_TOOLS,     /* has tools, which the chat template does not read */
    ROW_CALLS,     /* the same of a message's tool_calls */
    ROW_THOUGHTS,  /* and of its reasoning_content or thinking */
    ROW_PARTS,     /* has a list of content parts, the same */
    ROW_UNTRAINED, /* the loss counts nothing of it */
    ROW_SPECIALS,  /* special tokens are written in its messages: `count` */
    ROW_NOTES
};
enum { ROWS_KEPT = 5, ROW_BYTES = 400 };

struct row_notes { /* all zero: none */
    struct noted {
        long long rows, count;
        int kept;
        char first[ROWS_KEPT][ROW_BYTES]; /* "data.jsonl:7", and why it is bad
                                           */
    } of[ROW_NOTES];
};

void row_notes_add(
        struct row_notes *notes, enum row_note which, int64_t count,
        const char *row);
/* The thread's error is that of a bad row; it is cleared. */
void row_notes_take_error(struct row_notes *notes);
/* Those of a later unit; `from` has none afterwards. */
void row_notes_append(struct row_notes *notes, struct row_notes *from);
/* {"special_tokens": {"rows": 2, "count": 3, "first": ["data.jsonl:7"]}, ...},
 * what there is. */
json_t *row_notes_json(const struct row_notes *notes);
/* Beside the cache file `path`; no file where there are none. What was saved is
 * read only as far as it can be: it helps people. */
enum zd_status row_notes_save(const struct row_notes *notes, const char *path);
void row_notes_load(struct row_notes *notes, const char *path);

/* Log a warning for each kind of which there are rows. `source`: what the data
 * is called; `chat_template`: its name, or NULL. */
void row_notes_tell(
        const struct row_notes *notes, const char *source,
        const char *chat_template);
