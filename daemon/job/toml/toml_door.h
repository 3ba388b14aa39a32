/* toml_door.h - the door to toml++: text in, a plain C tree out that remembers
 * where every key and value stands. Only its own source is C++.
 *
 * Hostile text is an error, never a crash: nesting of brackets and the parts of
 * a dotted key are bounded where the library reads them, because it walks and
 * destroys its tree by recursion. A leading byte-order mark is skipped. */
#pragma once

#include "base/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TOML_MAX_BYTES = 1 << 20, TOML_MAX_DEPTH = 64 };

enum toml_kind {
    TOML_STRING,
    TOML_INTEGER,
    TOML_REAL,
    TOML_BOOL,
    TOML_DATETIME,
    TOML_ARRAY,
    TOML_TABLE
};

struct toml_source { /* a file, or a --set value, that nodes came from */
    char *name;      /* "job.toml", "--set train.max_steps=5" */
    char *text;      /* whole file, NUL-terminated; NULL: no lines to show */
    size_t bytes;
};

struct toml_place { /* columns count code points, from 1; line 0: none */
    const struct toml_source *source;
    int line, column, width;
};

struct toml_node {
    enum toml_kind kind;
    char *key;                   /* NULL in an array and for the root */
    struct toml_place key_place; /* equals place where there is no key */
    struct toml_place place;     /* of the value */
    char *string;                /* TOML_STRING, without NUL */
    int64_t integer;
    double real;
    bool boolean;
    struct toml_node **items; /* of an array or table, in file order */
    int count;
};

struct toml_error {
    char what[400];
    int line, column;
};

/* Parse source->text. ZD_ERR_CONFIG fills *error (what and where; no record is
 * made). `source` is borrowed by the nodes. */
enum zd_status toml_parse(
        const struct toml_source *source, struct toml_error *error,
        struct toml_node **root_out);

/* --- toml_tree.c: look up, add, replace, merge --- */

void toml_free(struct toml_node *node);
/* "string", "integer", ... with its article: "a string". */
const char *toml_kind_name(enum toml_kind kind);
/* A new node; `key` is copied. Running out of memory here ends the process:
 * what is built is smaller than the text it came from. */
struct toml_node *toml_new(
        enum toml_kind kind, const char *key, struct toml_place place);
struct toml_node *toml_find(const struct toml_node *table, const char *key);
/* Add `item` (ownership taken), in place of one of the same key. */
void toml_put(struct toml_node *table, struct toml_node *item);
/* Take item i out; the caller owns it. */
struct toml_node *toml_take(struct toml_node *table, int i);
void toml_rename(struct toml_node *item, const char *key);
/* Put all of `over` (ownership taken) over `base`, key by key. Tables merge;
 * everything else, arrays too, is replaced whole. */
void toml_merge(struct toml_node *base, struct toml_node *over);

#ifdef __cplusplus
}
#endif
