/* completions_parts.c - what the scripts of all shells are made of. */
#include "daemon/command/completions_internal.h"

#include <ctype.h>
#include <string.h>

/* --- placeholders --- */

static bool is_one_of(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void add_part(
        const struct completion_keys *keys, const char *part,
        struct completion_value *value)
{
    size_t used = strlen(value->words);
    if (!part[0])
        return;
    for (; keys && keys->placeholder; keys++)
        if (strcmp(part, keys->placeholder) == 0) {
            value->is_key = !keys->words;
            value->more = keys->words ? keys->words : "";
            return;
        }
    char word[64]; /* DIR of DIR=WEIGHT */
    snprintf(word, sizeof word, "%.*s", (int)strcspn(part, "="), part);
    if (is_one_of(part, "FILE PATH CHECKPOINT SOCKET"))
        value->is_file = true;
    else if (is_one_of(word, "DIR OUT"))
        value->is_dir = true;
    else if (strcmp(part, "JOB") == 0)
        value->is_job = true;
    else if (islower((unsigned char)part[0]))
        snprintf(
                value->words + used, sizeof value->words - used, "%s%s",
                used ? " " : "", part);
}

struct completion_value completion_value_of(
        const struct completion_keys *keys, const char *placeholder)
{
    struct completion_value value = {.more = ""};
    char text[256], *rest = text;
    size_t used = 0;
    for (const char *c = placeholder ? placeholder : ""; *c; c++)
        if (!strchr("[]", *c) && used < sizeof text - 1)
            text[used++] = *c;
    while (used && text[used - 1] == '.')
        used--;
    text[used] = '\0';
    for (char *part; (part = strsep(&rest, "|"));)
        add_part(keys, part, &value);
    return value;
}

/* --- scripts --- */

void completion_put_values(
        FILE *stream, const struct cli_program *program,
        const struct completion_keys *keys, const char *open,
        completion_value_fn *put_value)
{
    fprintf(stream, "_%s_values() {\n    case $1 in\n", program->name);
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (!option->value)
            continue;
        struct completion_value value =
                completion_value_of(keys, option->value);
        fprintf(stream, "    %s--%s", open, option->name);
        if (option->letter)
            fprintf(stream, "|-%c", option->letter);
        fputs(") ", stream);
        put_value(stream, program, &value);
    }
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        struct completion_value value =
                completion_value_of(keys, command->operands);
        if (!command->operands_max)
            continue;
        fprintf(stream, "    %s'%s') ", open, command->name);
        put_value(stream, program, &value);
    }
    fputs("    esac\n}\n\n", stream);
}

bool completion_begins_group(
        const struct cli_program *program, int index, char *group_out,
        size_t bytes)
{
    const char *name = program->commands[index].name;
    const char *space = strchr(name, ' ');
    if (!space)
        return false;
    size_t length = (size_t)(space - name) + 1;
    if (index && strncmp(program->commands[index - 1].name, name, length) == 0)
        return false;
    snprintf(group_out, bytes, "%.*s", (int)length - 1, name);
    return true;
}

static void put_valued(
        FILE *stream, const struct cli_program *program, const char *between)
{
    bool is_first = true;
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (!option->value)
            continue;
        fprintf(stream, "%s--%s", is_first ? "" : between, option->name);
        if (option->letter)
            fprintf(stream, "%s-%c", between, option->letter);
        is_first = false;
    }
}

void completion_put_script(
        FILE *stream, const struct cli_program *program, const char *script,
        const char *between)
{
    static const char name[] = "NAME", valued[] = "VALUED";
    for (const char *c = script; *c;) {
        if (strncmp(c, name, strlen(name)) == 0) {
            fputs(program->name, stream);
            c += strlen(name);
        } else if (strncmp(c, valued, strlen(valued)) == 0) {
            put_valued(stream, program, between);
            c += strlen(valued);
        } else
            fputc(*c++, stream);
    }
}

void completion_put_quoted(FILE *stream, const char *text)
{
    fputc('\'', stream);
    for (const char *c = text; *c; c++)
        fprintf(stream, *c == '\'' ? "'\"'\"'" : "%c", *c);
    fputc('\'', stream);
}

const struct completion_keys *completion_find_keys(
        const struct completion_keys *keys)
{
    for (; keys && keys->placeholder; keys++)
        if (!keys->words)
            return keys;
    return NULL;
}
