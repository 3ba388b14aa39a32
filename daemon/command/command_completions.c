#include "daemon/command/cli.h"

#include "daemon/cli/complete.h"
#include "daemon/init/embedded.h"
#include "daemon/job/schema.h"

#include <string.h>

enum zd_status command_completions(
        struct cli_args *args, int *argc, char ***argv)
{
    return complete_print_script(
            args->program->name, args->line.operands[0], stdout);
}

static bool may_be_set(const struct schema_key *key)
{
    return key->section[0] && strncmp(key->section, "data.", 5) != 0 &&
           key->type != SCHEMA_ENTRIES && key->type != SCHEMA_TABLE;
}

/* The words among what a key accepts: "auto | every:N | a path" has one. */
static void offer_key_value(
        const struct completion *completion, const struct schema_key *key)
{
    char accepts[1024], *rest = accepts;
    schema_accepts(key, accepts, sizeof accepts);
    bool is_list = strstr(accepts, " | ");
    for (char *word; is_list && (word = strsep(&rest, "|"));) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = '\0';
        if (strlen(word) > 1 && !strchr(word, ':')) /* "a path", "every:N" */
            complete_offer(completion, word, NULL);
    }
    if (key->flags & SCHEMA_AUTO)
        complete_offer(completion, "auto", NULL);
    if (key->type == SCHEMA_STRING || key->type == SCHEMA_WORD_OR_PATH)
        complete_files(completion, false);
}

static void offer_settings(const struct completion *completion)
{
    char name[2 * SCHEMA_NAME_MAX + 2], before[sizeof name + 80];
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        size_t length = (size_t)snprintf(
                name, sizeof name, "%s.%s=", key->section, key->name);
        if (!may_be_set(key))
            continue;
        if (strncmp(completion->value, name, length) != 0) {
            complete_offer(completion, name, key->help);
            continue;
        }
        snprintf(before, sizeof before, "%s%s", completion->before, name);
        struct completion value = {before, completion->value + length};
        offer_key_value(&value, key);
    }
}

/* The next word of --allow, after the last comma. */
static void offer_allowed(const struct completion *completion)
{
    static const char *const words[] = {"optim", "dtype", "lora", "quantize"};
    const char *comma = strrchr(completion->value, ',');
    int typed = comma ? (int)(comma + 1 - completion->value) : 0;
    char before[160];
    snprintf(
            before, sizeof before, "%s%.*s", completion->before, typed,
            completion->value);
    struct completion next = {before, completion->value + typed};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        complete_offer(&next, words[i], NULL);
}

void cli_complete_value(
        const struct completion *completion, const char *placeholder)
{
    struct embedded recipe;
    if (strcmp(placeholder, "SECTION.KEY=VALUE") == 0)
        offer_settings(completion);
    else if (strcmp(placeholder, "LIST") == 0)
        offer_allowed(completion);
    else if (strcmp(placeholder, "RECIPE") == 0)
        for (int i = 0; (recipe = embedded_at(embedded_recipes, i)).name; i++)
            complete_offer(completion, recipe.name, NULL);
}
