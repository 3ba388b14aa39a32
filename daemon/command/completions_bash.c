/* completions_bash.c - needs nothing but bash itself (4.4): the line is cut at
 * blanks, not at '=' and ':' as COMP_WORDS is, and the part of the answer that
 * bash would repeat is cut off again. compgen -W expands what it is given: it
 * gets words of the tables alone, and no name of a file. */
#include "daemon/command/completions_internal.h"

#include <string.h>

static void put_commands(FILE *stream, const struct cli_program *program)
{
    char group[64];
    fprintf(stream, "_%s_commands() {\n    case $1 in\n", program->name);
    for (int i = 0; i < program->command_count; i++)
        if (completion_begins_group(program, i, group, sizeof group)) {
            fprintf(stream, "    %s) words='", group);
            for (int j = i; j < program->command_count; j++)
                if (strncmp(program->commands[j].name, group, strlen(group)) ==
                    0)
                    fprintf(stream, "%s%s", j > i ? " " : "",
                            program->commands[j].name + strlen(group) + 1);
            fputs("' ;;\n", stream);
        }
    fputs("    '') words='", stream);
    for (int i = 0; i < program->command_count; i++) {
        if (completion_begins_group(program, i, group, sizeof group))
            fprintf(stream, "%s%s", i ? " " : "", group);
        else if (!strchr(program->commands[i].name, ' '))
            fprintf(stream, "%s%s", i ? " " : "", program->commands[i].name);
    }
    fputs("' ;;\n    *) words= ;;\n    esac\n}\n\n", stream);
}

static void put_options_of(
        FILE *stream, const struct cli_program *program,
        const struct cli_command *command)
{
    const char *blank = "";
    fputs("words='", stream);
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (!cli_takes(program, command, option))
            continue;
        fprintf(stream, "%s--%s", blank, option->name);
        if (option->letter)
            fprintf(stream, " -%c", option->letter);
        blank = " ";
    }
    if (!command || command == program->unnamed)
        fputs(" --version", stream);
    fputs("' ;;\n", stream);
}

static void put_options(FILE *stream, const struct cli_program *program)
{
    fprintf(stream, "_%s_options() {\n    case $1 in\n", program->name);
    for (int i = 0; i < program->command_count; i++) {
        fprintf(stream, "    '%s') ", program->commands[i].name);
        put_options_of(stream, program, &program->commands[i]);
    }
    fputs("    *) ", stream);
    put_options_of(stream, program, program->unnamed);
    fputs("    esac\n}\n\n", stream);
}

static void put_value(
        FILE *stream, const struct cli_program *program,
        const struct completion_value *value)
{
    if (value->words[0] || value->more[0])
        fprintf(stream, "words='%s%s%s'; ", value->words,
                value->words[0] ? " " : "", value->more);
    if (value->is_job)
        fputs("jobs=1; ", stream);
    if (value->is_file)
        fputs("files=-f; ", stream);
    if (value->is_dir)
        fputs("files=-d; ", stream);
    if (value->is_key)
        fputs("keys=1; ", stream);
    fputs(";;\n", stream);
}

static void put_keys(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *all)
{
    const struct completion_keys *keys = completion_find_keys(all);
    fprintf(stream,
            "_%s_keys() { # $1: the key of which a value is asked, or nothing\n"
            "    case $1 in\n    '') words='",
            program->name);
    for (int i = 0; keys && i < keys->count; i++)
        fprintf(stream, "%s%s=", i ? " " : "", keys->keys[i].name);
    fputs("' ;;\n", stream);
    for (int i = 0; keys && i < keys->count; i++) {
        const struct completion_key *key = &keys->keys[i];
        if (!key->values[0] && !key->is_file)
            continue;
        fprintf(stream, "    %s) ", key->name);
        if (key->values[0])
            fprintf(stream, "words='%s'; ", key->values);
        fputs(key->is_file ? "files=-f; ;;\n" : ";;\n", stream);
    }
    fputs("    esac\n}\n\n", stream);
}

static const char script[] =
        "_zerod_jobs() {\n"
        "    local folder socket name\n"
        "    for folder in \"${XDG_RUNTIME_DIR:-/}/zerod\" \"/tmp/zerod-$UID\"; "
        "do\n"
        "        [[ -O $folder && ! -L $folder ]] || continue\n"
        "        for socket in \"$folder\"/*.sock; do\n"
        "            name=${socket##*/}\n"
        "            name=${name%.sock}\n"
        "            [[ -S $socket && -O $socket ]] || continue\n"
        "            [[ $name == -* || $name == "
        "*[^[:alnum:]._+,@%:=-]* ]] || printf '%s\\n' \"$name\"\n"
        "        done\n"
        "    done\n"
        "}\n"
        "\n"
        "_NAME() {\n"
        "    local line=${COMP_LINE:0:COMP_POINT} current option= command= "
        "value before words= files= keys= jobs= job i\n"
        "    local -a typed\n"
        "    read -ra typed <<<\"$line\"\n"
        "    [[ $line == *[[:space:]] ]] && typed+=('')\n"
        "    current=${typed[${#typed[@]} - 1]}\n"
        "    for ((i = 1; i < ${#typed[@]} - 1; i++)); do\n"
        "        case ${typed[i]} in\n"
        "        VALUED)\n"
        "            ((i + 2 == ${#typed[@]})) && option=${typed[i]}\n"
        "            ((i++)) ;;\n"
        "        -*) ;;\n"
        "        *)\n"
        "            _NAME_commands \"$command\"\n"
        "            [[ \" $words \" == *\" ${typed[i]} \"* ]] &&\n"
        "                command+=${command:+ }${typed[i]} ;;\n"
        "        esac\n"
        "    done\n"
        "    words= value=$current\n"
        "    if [[ -z $option && $current == --*=* ]]; then\n"
        "        option=${current%%=*}\n"
        "        value=${current#*=}\n"
        "    fi\n"
        "    if [[ -n $option ]]; then\n"
        "        _NAME_values \"$option\"\n"
        "    elif [[ $current == -* ]]; then\n"
        "        _NAME_options \"$command\"\n"
        "    else\n"
        "        _NAME_commands \"$command\"\n"
        "        [[ -n $words || -z $command ]] || _NAME_values \"$command\"\n"
        "    fi\n"
        "    if [[ -n $keys && $value == *=* ]]; then\n"
        "        _NAME_keys \"${value%%=*}\"\n"
        "        value=${value#*=}\n"
        "    elif [[ -n $keys ]]; then\n"
        "        _NAME_keys ''\n"
        "        compopt -o nospace 2>/dev/null\n"
        "    fi\n"
        "    COMPREPLY=()\n"
        "    [[ -z $words ]] ||\n"
        "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- "
        "\"$value\")\n"
        "    [[ -z $jobs ]] || while IFS= read -r job; do\n"
        "        [[ $job != \"$value\"* ]] || COMPREPLY+=(\"$job\")\n"
        "    done < <(_zerod_jobs)\n"
        "    if [[ -n $files ]]; then\n"
        "        compopt -o filenames 2>/dev/null\n"
        "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < "
        "<(compgen $files -- \"$value\")\n"
        "    fi\n"
        "    # What bash keeps of the word: up to its last '=' or ':'.\n"
        "    before=${current%\"$value\"}\n"
        "    if [[ $COMP_WORDBREAKS == *=* && $before == *=* ]]; then\n"
        "        before=\n"
        "    fi\n"
        "    if [[ $COMP_WORDBREAKS == *:* && $value == *:* ]]; then\n"
        "        value=${value%\"${value##*:}\"}\n"
        "        COMPREPLY=(\"${COMPREPLY[@]#\"$value\"}\")\n"
        "        before=\n"
        "    fi\n"
        "    COMPREPLY=(\"${COMPREPLY[@]/#/$before}\")\n"
        "}\n"
        "complete -F _NAME NAME\n";

void completion_put_bash(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys)
{
    fprintf(stream, "# %s(1), completion for bash; written by zerod-docs\n\n",
            program->name);
    put_commands(stream, program);
    put_options(stream, program);
    completion_put_values(stream, program, keys, "", put_value);
    put_keys(stream, program, keys);
    completion_put_script(stream, program, script, "|");
}
