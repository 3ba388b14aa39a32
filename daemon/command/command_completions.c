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

static void offer_settings(const struct completion *completion)
{
    char name[2 * SCHEMA_NAME_MAX + 2];
    for (int i = 0; i < schema_count; i++) {
        const struct schema_key *key = &schema_table[i];
        snprintf(name, sizeof name, "%s.%s=", key->section, key->name);
        if (may_be_set(key))
            complete_offer(completion, name, key->help);
    }
}

void cli_complete_value(
        const struct completion *completion, const char *placeholder)
{
    struct embedded recipe;
    if (strcmp(placeholder, "SECTION.KEY=VALUE") == 0)
        offer_settings(completion);
    else if (strcmp(placeholder, "RECIPE") == 0)
        for (int i = 0; (recipe = embedded_at(embedded_recipes, i)).name; i++)
            complete_offer(completion, recipe.name, NULL);
}
