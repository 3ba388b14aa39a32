#include "daemon/job/schema.h"

#include "base/suggest.h"

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

bool schema_is_number(const struct schema_key *key)
{
    return key->type == SCHEMA_INT || key->type == SCHEMA_INT64 ||
           key->type == SCHEMA_UINT64 || key->type == SCHEMA_REAL ||
           key->type == SCHEMA_STEPS;
}

/* The next word of a list separated by spaces, copied into `word`. */
static bool next_word(const char **list, char *word, size_t word_bytes)
{
    *list += strspn(*list, " ");
    size_t length = strcspn(*list, " ");
    if (length == 0 || length >= word_bytes)
        return false;
    memcpy(word, *list, length);
    word[length] = '\0';
    *list += length;
    return true;
}

static bool has_alias(const struct schema_key *key, const char *name)
{
    char word[SCHEMA_NAME_MAX];
    const char *list = key->aliases;
    while (list && next_word(&list, word, sizeof word))
        if (strcmp(word, name) == 0)
            return true;
    return false;
}

const struct schema_key *schema_find_alias(
        const char *section, const char *name)
{
    for (int i = 0; i < schema_count; i++)
        if (strcmp(schema_table[i].section, section) == 0 &&
            has_alias(&schema_table[i], name))
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
    return pass == 2 ? has_alias(key, name) : strcasecmp(key->name, name) == 0;
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

/* Does `word` come nearer to `name` than what was found before? The same
 * section first: a tie elsewhere does not win. */
static bool is_nearer(
        const char *name, const char *word, bool is_here, int *best)
{
    int distance = edit_distance(name, word);
    int score = 2 * distance + !is_here;
    if (!suggest_is_near(name, distance) || score >= *best)
        return false;
    *best = score;
    return true;
}

const struct schema_key *schema_suggest(
        const char *section, const char *name, char found[SCHEMA_NAME_MAX])
{
    const struct schema_key *key = NULL;
    int best = INT_MAX;

    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *candidate = &schema_table[i];
        bool is_here = strcmp(candidate->section, section) == 0;
        char word[SCHEMA_NAME_MAX];
        const char *list = candidate->aliases;
        snprintf(word, sizeof word, "%s", candidate->name);
        do {
            if (is_nearer(name, word, is_here, &best)) {
                key = candidate;
                memcpy(found, word, SCHEMA_NAME_MAX);
            }
        } while (list && next_word(&list, word, sizeof word));
    }
    return key;
}

const char *schema_suggest_choice(
        const struct schema_key *key, const char *typed)
{
    struct suggestion nearest = {0};
    if (strcmp(typed, "gpu") == 0) /* nearer to "cpu" by letters */
        typed = "cuda";
    for (const struct schema_choice *c = key->choices; c && c->name; c++) {
        bool is_there = !c->note || c->note[0] != '!';
        if (is_there)
            suggest_offer(
                    &nearest, typed, edit_distance(typed, c->name), c->name);
    }
    return nearest.word;
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

static size_t append(char *out, size_t out_bytes, size_t used, const char *text)
{
    int n = snprintf(out + used, out_bytes - used, "%s", text);
    used += (size_t)n;
    return used < out_bytes ? used : out_bytes - 1;
}

static size_t append_choices(
        const struct schema_key *key, char *out, size_t out_bytes, size_t used)
{
    bool is_first = true;
    for (const struct schema_choice *c = key->choices; c->name; c++) {
        if (c->note)
            continue;
        if (!is_first)
            used = append(out, out_bytes, used, " | ");
        is_first = false;
        used = append(out, out_bytes, used, c->name);
    }
    return used;
}

static void accepts_number(
        const struct schema_key *key, const char *what, char *out, size_t bytes)
{
    char low[32], high[32];
    snprintf(low, sizeof low, "%.15g", key->min);
    snprintf(high, sizeof high, "%.15g", key->max);
    if (key->max > 1e6) /* no bound a person would meet */
        snprintf(
                out, bytes, "%s %s %s%s", what,
                key->flags & SCHEMA_ABOVE_MIN ? "above" : "of at least", low,
                key->flags & SCHEMA_NOT_ZERO ? ", not 0" : "");
    else
        snprintf(
                out, bytes, "%s %s %s %s %s", what,
                key->flags & SCHEMA_ABOVE_MIN ? "above" : "from", low,
                key->flags & SCHEMA_BELOW_MAX ? "to below" : "to", high);
}

void schema_accepts(const struct schema_key *key, char *out, size_t out_bytes)
{
    out[0] = '\0';
    if (key->flags & SCHEMA_UNAVAILABLE) {
        snprintf(out, out_bytes, "nothing in this version");
        return;
    }
    switch (key->type) {
    case SCHEMA_STRING:
        snprintf(
                out, out_bytes,
                key->flags & SCHEMA_NAMES
                        ? "1 to 48 letters, digits, '.', '_' or '-'"
                        : "a string");
        break;
    case SCHEMA_WORD:
    case SCHEMA_ENUM:
    case SCHEMA_DTYPE:
    case SCHEMA_OPTIMIZER:
        append_choices(key, out, out_bytes, 0);
        break;
    case SCHEMA_BOOL:
        snprintf(out, out_bytes, "true | false");
        break;
    case SCHEMA_INT:
    case SCHEMA_INT64:
    case SCHEMA_UINT64:
        accepts_number(key, "an integer", out, out_bytes);
        break;
    case SCHEMA_REAL:
        accepts_number(key, "a number", out, out_bytes);
        break;
    case SCHEMA_STEPS:
        snprintf(out, out_bytes, "whole steps, or a fraction below 1");
        break;
    case SCHEMA_SIZE:
        snprintf(out, out_bytes, "bytes, or a size like \"64MiB\" or \"5GB\"");
        break;
    case SCHEMA_LIMIT:
        snprintf(
                out, out_bytes,
                "bytes, a size like \"12GiB\", or a share like \"90%%\"");
        break;
    case SCHEMA_DURATION:
        snprintf(out, out_bytes, "a time like \"90s\", \"5m\" or \"1h30m\"");
        break;
    case SCHEMA_MOMENT:
        snprintf(
                out, out_bytes,
                "a moment like \"2026-11-22T08:00:00Z\", or a time like "
                "\"23h50m\"");
        break;
    case SCHEMA_STRINGS:
        snprintf(out, out_bytes, "an array of strings");
        break;
    case SCHEMA_MODULES:
        snprintf(out, out_bytes, "a pattern, or an array of names");
        break;
    case SCHEMA_LAYERS:
        snprintf(out, out_bytes, "an integer, or an array of integers");
        break;
    case SCHEMA_RESUME:
        snprintf(out, out_bytes, "auto | never | must | a path");
        break;
    case SCHEMA_SOCKET:
        snprintf(out, out_bytes, "auto | none | a path with a /");
        break;
    case SCHEMA_CHECKPOINTING:
        snprintf(out, out_bytes, "none | selective | full | every:N | sqrt | auto");
        break;
    case SCHEMA_ENTRIES:
        snprintf(
                out, out_bytes, "an array of tables, [[%s.%s]]", key->section,
                key->name);
        break;
    case SCHEMA_TABLE:
        snprintf(out, out_bytes, "a table, [%s.%s]", key->section, key->name);
        break;
    case SCHEMA_VERSION:
        snprintf(out, out_bytes, "1");
        break;
    case SCHEMA_EXTENDS:
        snprintf(out, out_bytes, "the path of a job file");
        break;
    }
    if (key->flags & SCHEMA_AUTO) {
        size_t used = strlen(out);
        append(out, out_bytes, used, ", or \"auto\"");
    }
}
