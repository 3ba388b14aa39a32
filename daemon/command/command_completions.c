#include "daemon/command/cli.h"

#include "daemon/cli/complete.h"
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
           key->type != SCHEMA_ENTRIES && key->type != SCHEMA_TABLE &&
           !(key->flags & SCHEMA_UNAVAILABLE);
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

void cli_complete_value(
        const struct completion *completion, const char *placeholder)
{
    char name[2 * SCHEMA_NAME_MAX + 2], before[sizeof name + 80];
    if (strcmp(placeholder, "SECTION.KEY=VALUE") != 0)
        return;
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
