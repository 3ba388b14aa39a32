#include "daemon/command/cli.h"

#include "daemon/cli/complete.h"
#include "daemon/cli/output.h"
#include "daemon/init/embedded.h"
#include "daemon/job/schema.h"
#include "zd_config.h"

#include <string.h>

static bool may_be_set(const struct schema_key *key)
{
    return key->section[0] && strncmp(key->section, "data.", 5) != 0 &&
           key->type != SCHEMA_ENTRIES && key->type != SCHEMA_TABLE;
}

static void offer_settings(const struct completion *completion)
{
    char name[2 * SCHEMA_NAME_MAX + 2];
    ZD_EACH(key, schema_table, schema_count) {
        ZD_PRINT(name, "%s.%s=", key->section, key->name);
        if (may_be_set(key))
            complete_offer(completion, name, key->help);
    }
}

/* The values after TAB that are not files or words: keys of job.toml. */
static void complete_value(
        const struct completion *completion, const char *placeholder)
{
    struct embedded recipe;
    if (strcmp(placeholder, "SECTION.KEY=VALUE") == 0)
        offer_settings(completion);
    else if (strcmp(placeholder, "RECIPE") == 0)
        for (int i = 0; (recipe = embedded_at(embedded_recipes, i)).name; i++)
            complete_offer(completion, recipe.name, NULL);
}

int cli_main(int argc, char **argv)
{
    struct cli_args args;
    const struct cli_command *command = NULL;
    enum zd_status status = ZD_OK;

    if (cli_is_version(argc, argv)) {
        printf("zerod %s\n", ZD_VERSION);
    } else if (!complete_main(&zerod_program, argc, argv, complete_value)) {
        status = cli_parse(&zerod_program, argc, argv, &args, &command);
        args.argc = &argc;
        args.argv = &argv;
        if (status != ZD_OK)
            status = command_run_refused(&args, status);
        if (status == ZD_OK && args.line.help)
            cli_print_help(&zerod_program, command, stdout);
        else if (status == ZD_OK) {
            cli_configure_log(&args, -1);
            status = command->run(&args);
        }
    }
    zd_error_print(stderr, zd_error_get());
    return output_finish(zd_exit_code(status));
}
