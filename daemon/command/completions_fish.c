/* completions_fish.c - one line per command, option and value. */
#include "daemon/command/completions_internal.h"

#include <string.h>

static const char script[] =
        "function __zerod_jobs\n"
        "    for folder in $XDG_RUNTIME_DIR/zerod /tmp/zerod-(id -u)\n"
        "        test -O $folder; and not test -L $folder; or continue\n"
        "        for socket in $folder/*.sock\n"
        "            set -l name (string replace -r '.*/(.*)\\.sock$' '$1' -- "
        "$socket)\n"
        "            test -S $socket; and test -O $socket; or continue\n"
        "            string match -r '^[\\w.+,@%:=][\\w.+,@%:=-]*$' -- $name\n"
        "        end\n"
        "    end\n"
        "end\n"
        "\n"
        "# Is the command of this line $argv[1]? '' before there is one.\n"
        "function __NAME_at\n"
        "    set -l command\n"
        "    set -l skip 0\n"
        "    for word in (commandline -opc)[2..-1]\n"
        "        if test $skip = 1\n"
        "            set skip 0\n"
        "        else if contains -- $word VALUED\n"
        "            set skip 1\n"
        "        else if not string match -q -- '-*' $word\n"
        "            if contains -- (string join ' ' $command $word) "
        "$__NAME_commands\n"
        "                set -a command $word\n"
        "            end\n"
        "        end\n"
        "    end\n"
        "    test \"$argv[1]\" = (string join ' ' -- $command '' | string "
        "trim)\n"
        "end\n"
        "\n";

static void put_value(FILE *stream, const struct completion_value *value)
{
    if (value->is_file || value->is_dir)
        fputs(value->is_dir ? " -a '(__fish_complete_directories)'" : " -F",
              stream);
    if (value->words[0] || value->more[0])
        fprintf(stream, " -a '%s %s'", value->words, value->more);
    if (value->is_job)
        fputs(" -a '(__zerod_jobs)'", stream);
}

static void put_help(FILE *stream, const char *help)
{
    fputs(" -d ", stream);
    completion_put_quoted(stream, help);
    fputc('\n', stream);
}

static void put_commands(FILE *stream, const struct cli_program *program)
{
    char group[64];
    fprintf(stream, "set -g __%s_commands", program->name);
    for (int i = 0; i < program->command_count; i++) {
        if (completion_begins_group(program, i, group, sizeof group))
            fprintf(stream, " %s", group);
        fprintf(stream, " '%s'", program->commands[i].name);
    }
    fprintf(stream, "\n\ncomplete -c %s -f\n", program->name);
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        const char *space = strchr(command->name, ' ');
        if (completion_begins_group(program, i, group, sizeof group)) {
            fprintf(stream, "complete -c %s -n \"__%s_at ''\" -a %s",
                    program->name, program->name, group);
            put_help(stream, command->help);
        }
        fprintf(stream, "complete -c %s -n \"__%s_at '%.*s'\" -a %s",
                program->name, program->name,
                space ? (int)(space - command->name) : 0, command->name,
                space ? space + 1 : command->name);
        put_help(stream, command->help);
    }
}

/* The line of one option; of all commands when `command` is NULL. */
static void put_option(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys, const struct cli_option *option,
        const char *command)
{
    struct completion_value value = completion_value_of(keys, option->value);
    fprintf(stream, "complete -c %s", program->name);
    if (command)
        fprintf(stream, " -n \"__%s_at '%s'\"", program->name, command);
    fprintf(stream, " -l %s", option->name);
    if (option->letter)
        fprintf(stream, " -s %c", option->letter);
    if (option->value)
        fputs(value.is_file ? " -r" : " -x", stream);
    put_value(stream, &value);
    if (value.is_key)
        fprintf(stream, " -a '(__%s_keys)'", program->name);
    put_help(stream, option->help);
}

static void put_options(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (cli_takes(program, NULL, option)) {
            put_option(stream, program, keys, option, NULL);
            continue;
        }
        if (program->unnamed && cli_takes(program, program->unnamed, option))
            put_option(stream, program, keys, option, "");
        for (int c = 0; c < program->command_count; c++)
            if (cli_takes(program, &program->commands[c], option))
                put_option(
                        stream, program, keys, option,
                        program->commands[c].name);
    }
    fprintf(stream, "complete -c %s -n \"__%s_at ''\" -l version",
            program->name, program->name);
    put_help(stream, "Show the version");
}

static void put_operands(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        struct completion_value value =
                completion_value_of(keys, command->operands);
        bool has = value.words[0] || value.more[0] || value.is_file ||
                   value.is_dir || value.is_job || value.is_key;
        if (!has)
            continue;
        fprintf(stream, "complete -c %s -n \"__%s_at '%s'\"", program->name,
                program->name, command->name);
        put_value(stream, &value);
        if (value.is_key)
            fprintf(stream, " -a '(__%s_keys)'", program->name);
        fputc('\n', stream);
    }
}

/* Keys, and behind the '=' of one key=word for every word: fish offers those
 * that begin as the line does. */
static void put_keys(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    fprintf(stream,
            "function __%s_keys\n"
            "    if not string match -q -- '*=*' "
            "(string replace -r -- '^--[^=]*=' '' (commandline -ct))\n"
            "        printf '%%s\\n'",
            program->name);
    for (int i = 0; i < keys->count; i++)
        fprintf(stream, " %s=", keys->keys[i].name);
    fputs("\n        return\n    end\n    printf '%s\\n'", stream);
    for (int i = 0; i < keys->count; i++)
        for (const char *at = keys->keys[i].values; *at;) {
            int length = (int)strcspn(at, " ");
            fprintf(stream, " %s=%.*s", keys->keys[i].name, length, at);
            at += length + (at[length] == ' ');
        }
    fputs("\nend\n\n", stream);
}

void completion_put_fish(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    fprintf(stream, "# %s(1), completion for fish; written by zerod-docs\n\n",
            program->name);
    completion_put_script(stream, program, script, " ");
    if (completion_find_keys(keys))
        put_keys(stream, program, completion_find_keys(keys));
    put_commands(stream, program);
    put_options(stream, program, keys);
    put_operands(stream, program, keys);
}
