#include "daemon/job/schema.h"

#include "base/suggest.h"
#include "base/words.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

int schema_index(const struct schema_key *key)
{
    return (int)(key - schema_table);
}

const struct schema_key *schema_find(const char *section, const char *name)
{
    for (int i = 0; i < schema_count; i++)
        if (strcmp(schema_table[i].name, name) == 0 &&
            strcmp(schema_table[i].section, section) == 0)
            return &schema_table[i];
    return NULL;
}

const struct schema_key *schema_find_alias(
        const char *section, const char *name)
{
    for (int i = 0; i < schema_count; i++)
        if (strcmp(schema_table[i].section, section) == 0 &&
            words_have(schema_table[i].aliases, " ", name))
            return &schema_table[i];
    return NULL;
}

/* 0: a sub-section of `section`, 1: elsewhere by name, 2: by an alias. */
static bool is_elsewhere(
        const struct schema_key *key, const char *section, const char *name,
        int pass)
{
    size_t length = strlen(section);
    if (strcmp(key->section, section) == 0)
        return false;
    if (pass == 0 && (strncmp(key->section, section, length) != 0 ||
                      key->section[length] != '.'))
        return false;
    return pass == 2 ? words_have(key->aliases, " ", name)
                     : strcasecmp(key->name, name) == 0;
}

const struct schema_key *schema_find_elsewhere(
        const char *section, const char *name)
{
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < schema_count; i++)
            if (is_elsewhere(&schema_table[i], section, name, pass))
                return &schema_table[i];
    return NULL;
}

/* The same section first: a tie elsewhere does not win. */
const struct schema_key *schema_suggest(
        const char *section, const char *name, char found[SCHEMA_NAME_MAX])
{
    const struct schema_key *key = NULL;
    int best = INT_MAX;
    for (int i = 0; i < 2 * schema_count; i++) {
        const struct schema_key *candidate = &schema_table[i % schema_count];
        bool is_here = strcmp(candidate->section, section) == 0;
        char word[SCHEMA_NAME_MAX];
        const char *list = candidate->aliases;
        if (is_here != (i < schema_count))
            continue;
        ZD_PRINT(word, "%s", candidate->name);
        do {
            int distance = edit_distance(name, word);
            if (suggest_is_near(name, distance) && distance < best) {
                best = distance;
                key = candidate;
                memcpy(found, word, SCHEMA_NAME_MAX);
            }
        } while (words_next(&list, " ", word, sizeof word));
    }
    return key;
}

const struct schema_choice *schema_suggest_choice(
        const struct schema_key *key, const char *typed)
{
    const struct schema_choice *found = key->choices;
    struct suggestion nearest = {0};
    if (strcmp(typed, "gpu") == 0) /* nearer to "cpu" by letters */
        typed = "cuda";
    for (const struct schema_choice *c = key->choices; c && c->name; c++)
        if (!schema_is_elsewhere(c) || strcasecmp(typed, c->name) == 0)
            suggest_offer(
                    &nearest, typed, edit_distance(typed, c->name), c->name);
    while (nearest.word && found->name != nearest.word)
        found++;
    return nearest.word ? found : NULL;
}

bool schema_is_section(const char *section)
{
    for (int i = 0; i < schema_count; i++)
        if (strcmp(schema_table[i].section, section) == 0)
            return true;
    return false;
}

const char *schema_suggest_section(const char *section)
{
    struct suggestion nearest = {0};
    for (int i = 0; i < schema_count; i++) {
        const char *name = schema_table[i].section;
        if (name[0])
            suggest_offer(
                    &nearest, section, edit_distance(section, name), name);
    }
    return nearest.word;
}
