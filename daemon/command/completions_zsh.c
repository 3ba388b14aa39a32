/* completions_zsh.c - words with what they mean beside them. */
#include "daemon/command/completions_internal.h"

#include <string.h>

/* 'word:what it does', as _describe reads it. */
static void put_described(FILE *stream, const char *word, const char *help)
{
    char text[512];
    size_t used = 0;
    for (const char *c = word; *c && used < sizeof text - 2; c++) {
        if (*c == ':')
            text[used++] = '\\';
        text[used++] = *c;
    }
    snprintf(text + used, sizeof text - used, ":%s", help);
    fputs("        ", stream);
    completion_put_quoted(stream, text);
    fputc('\n', stream);
}

static void put_group(
        FILE *stream, const struct cli_program *program, const char *group)
{
    size_t length = strlen(group);
    fprintf(stream, "    (%s) list=(\n", group);
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        if (strncmp(command->name, group, length) == 0 &&
            command->name[length] == ' ')
            put_described(stream, command->name + length + 1, command->help);
    }
    fputs("    ) ;;\n", stream);
}

/* The help of a group is that of its first command: better than nothing. */
static void put_commands(FILE *stream, const struct cli_program *program)
{
    char group[64];
    fprintf(stream, "_%s_commands() {\n    case $1 in\n", program->name);
    for (int i = 0; i < program->command_count; i++)
        if (completion_begins_group(program, i, group, sizeof group))
            put_group(stream, program, group);
    fputs("    ('') list=(\n", stream);
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        if (completion_begins_group(program, i, group, sizeof group))
            put_described(stream, group, command->help);
        else if (!strchr(command->name, ' '))
            put_described(stream, command->name, command->help);
    }
    fputs("    ) ;;\n    (*) list=() ;;\n    esac\n}\n\n", stream);
}

static void put_options_of(
        FILE *stream, const struct cli_program *program,
        const struct cli_command *command)
{
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        char word[80];
        if (!cli_takes(program, command, option))
            continue;
        snprintf(word, sizeof word, "--%s", option->name);
        put_described(stream, word, option->help);
        snprintf(word, sizeof word, "-%c", option->letter);
        if (option->letter)
            put_described(stream, word, option->help);
    }
    if (!command || command == program->unnamed)
        put_described(stream, "--version", "Show the version");
}

static void put_options(FILE *stream, const struct cli_program *program)
{
    fprintf(stream, "_%s_options() {\n    case $1 in\n", program->name);
    for (int i = 0; i < program->command_count; i++) {
        fprintf(stream, "    ('%s') list=(\n", program->commands[i].name);
        put_options_of(stream, program, &program->commands[i]);
        fputs("    ) ;;\n", stream);
    }
    fputs("    (*) list=(\n", stream);
    put_options_of(stream, program, program->unnamed);
    fputs("    ) ;;\n    esac\n}\n\n", stream);
}

static void put_value(
        FILE *stream, const struct cli_program *program,
        const struct completion_value *value)
{
    if (value->words[0] || value->more[0])
        fprintf(stream, "compadd -- %s %s; ", value->words, value->more);
    if (value->is_job)
        fputs("compadd -- ${(f)\"$(_zerod_jobs)\"}; ", stream);
    if (value->is_file)
        fputs("_files; ", stream);
    if (value->is_dir)
        fputs("_files -/; ", stream);
    if (value->is_key)
        fprintf(stream, "_%s_keys; ", program->name);
    fputs(";;\n", stream);
}

static void put_keys(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *all)
{
    const struct completion_keys *keys = completion_find_keys(all);
    fprintf(stream,
            "_%s_keys() {\n"
            "    if ! compset -P 1 '*='; then\n"
            "        compadd -S '' --",
            program->name);
    for (int i = 0; keys && i < keys->count; i++)
        fprintf(stream, " %s=", keys->keys[i].name);
    fputs("\n        return\n"
          "    fi\n"
          "    case ${${IPREFIX##*[[:space:]]}%=} in\n",
          stream);
    for (int i = 0; keys && i < keys->count; i++) {
        const struct completion_key *key = &keys->keys[i];
        if (!key->values[0] && !key->is_file)
            continue;
        fprintf(stream, "    (*%s) ", key->name);
        if (key->values[0])
            fprintf(stream, "compadd -- %s; ", key->values);
        fputs(key->is_file ? "_files; ;;\n" : ";;\n", stream);
    }
    fputs("    esac\n}\n\n", stream);
}

static const char script[] =
        "_zerod_jobs() {\n"
        "    local folder socket name\n"
        "    for folder in ${XDG_RUNTIME_DIR:-/}/zerod /tmp/zerod-$UID; do\n"
        "        [[ -O $folder && ! -L $folder ]] || continue\n"
        "        for socket in $folder/*.sock(N=U); do\n"
        "            name=${${socket:t}%.sock}\n"
        "            [[ $name == -* || $name == "
        "*[^[:alnum:]._+,@%:=-]* ]] || print -r -- $name\n"
        "        done\n"
        "    done\n"
        "}\n"
        "\n"
        "_NAME() {\n"
        "    local option= command= i\n"
        "    local -a list\n"
        "    for ((i = 2; i < CURRENT; i++)); do\n"
        "        case ${words[i]} in\n"
        "        (VALUED)\n"
        "            ((i + 1 == CURRENT)) && option=${words[i]}\n"
        "            ((i++)) ;;\n"
        "        (-*) ;;\n"
        "        (*)\n"
        "            _NAME_commands \"$command\"\n"
        "            [[ -n ${list[(r)${words[i]}:*]} ]] &&\n"
        "                command+=${command:+ }${words[i]} ;;\n"
        "        esac\n"
        "    done\n"
        "    list=()\n"
        "    if [[ -z $option && $PREFIX == --*=* ]]; then\n"
        "        option=${PREFIX%%=*}\n"
        "        compset -P 1 '*='\n"
        "    fi\n"
        "    if [[ -n $option ]]; then\n"
        "        _NAME_values $option\n"
        "    elif [[ $PREFIX == -* ]]; then\n"
        "        _NAME_options \"$command\"\n"
        "        _describe option list\n"
        "    else\n"
        "        _NAME_commands \"$command\"\n"
        "        if (($#list)); then\n"
        "            _describe command list\n"
        "        elif [[ -n $command ]]; then\n"
        "            _NAME_values \"$command\"\n"
        "        fi\n"
        "    fi\n"
        "}\n"
        "_NAME \"$@\"\n";

void completion_put_zsh(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    fprintf(stream,
            "#compdef %s\n# %s(1), completion for zsh; written by zerod-docs\n"
            "\n",
            program->name, program->name);
    put_commands(stream, program);
    put_options(stream, program);
    completion_put_values(stream, program, keys, "(", put_value);
    put_keys(stream, program, keys);
    completion_put_script(stream, program, script, "|");
}
