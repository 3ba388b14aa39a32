/* toml_tree.h - putting parsed files together: look up, add, replace, merge. */
#ifndef ZD_DAEMON_JOB_TOML_TOML_TREE_H
#define ZD_DAEMON_JOB_TOML_TOML_TREE_H

#include "daemon/job/toml/toml_door.h"

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

#endif
