#include "daemon/job/toml/toml_door.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

struct toml_node *toml_new(
        enum toml_kind kind, const char *key, struct toml_place place)
{
    struct toml_node *node = zd_must(calloc(1, sizeof *node));
    node->kind = kind;
    node->place = node->key_place = place;
    if (key)
        toml_rename(node, key);
    return node;
}

void toml_rename(struct toml_node *item, const char *key)
{
    char *copy = zd_must(strdup(key));
    free(item->key);
    item->key = copy;
}

void toml_free(struct toml_node *node)
{
    if (!node)
        return;
    for (int i = 0; i < node->count; i++)
        toml_free(node->items[i]);
    free(node->items);
    free(node->key);
    free(node->string);
    free(node);
}

const char *toml_kind_name(enum toml_kind kind)
{
    static const char *const names[] = {
            "a string",  "an integer",     "a number with a fraction",
            "a boolean", "a date or time", "an array",
            "a table"};
    return names[kind];
}

static int find_index(const struct toml_node *table, const char *key)
{
    for (int i = 0; i < table->count; i++)
        if (table->items[i]->key && strcmp(table->items[i]->key, key) == 0)
            return i;
    return -1;
}

struct toml_node *toml_find(const struct toml_node *table, const char *key)
{
    int i = find_index(table, key);
    return i < 0 ? NULL : table->items[i];
}

void toml_put(struct toml_node *table, struct toml_node *item)
{
    int i = find_index(table, item->key);
    if (i >= 0) {
        toml_free(table->items[i]);
        table->items[i] = item;
        return;
    }
    size_t bytes = (size_t)(table->count + 1) * sizeof *table->items;
    table->items = zd_must(realloc(table->items, bytes));
    table->items[table->count++] = item;
}

struct toml_node *toml_take(struct toml_node *table, int i)
{
    struct toml_node *item = table->items[i];
    table->count--;
    memmove(&table->items[i], &table->items[i + 1],
            (size_t)(table->count - i) * sizeof *table->items);
    return item;
}

void toml_merge(struct toml_node *base, struct toml_node *over)
{
    for (int i = 0; i < over->count; i++) {
        struct toml_node *item = over->items[i];
        struct toml_node *old = toml_find(base, item->key);
        if (old && old->kind == TOML_TABLE && item->kind == TOML_TABLE)
            toml_merge(old, item);
        else
            toml_put(base, item);
    }
    over->count = 0;
    toml_free(over);
}
