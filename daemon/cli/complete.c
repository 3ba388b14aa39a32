#include "daemon/cli/complete.h"

#include "base/embedded.h"
#include "base/words.h"

#include <ctype.h>
#include <string.h>

void complete_offer(
        const struct completion *completion, const char *word, const char *help)
{
    if (strncmp(word, completion->value, strlen(completion->value)) == 0)
        printf("%s%s%s%s\n", completion->before, word, help ? "\t" : "",
               help ? help : "");
}

static void complete_files(const struct completion *completion, bool folders)
{
    printf(":%s %zu\n", folders ? "folders" : "files",
           strlen(completion->before));
}

/* --- values --- */

static void offer_part(
        const struct completion *completion, const char *part,
        complete_value_fn *values)
{
    static const char files[] = " FILE PATH CHECKPOINT SOCKET ",
                      folders[] = " DIR OUT ";
    char word[64]; /* DIR of DIR=WEIGHT */
    ZD_PRINT(word, " %.*s ", (int)strcspn(part, "="), part);
    if (strstr(files, word))
        complete_files(completion, false);
    else if (strstr(folders, word))
        complete_files(completion, true);
    else if (islower((unsigned char)part[0]) || isdigit((unsigned char)part[0]))
        complete_offer(completion, part, NULL);
    else if (part[0] && values)
        values(completion, part);
}

/* A placeholder of the tables: "auto|never|PATH", "[FILE]", "KEY=VALUE..". */
static void offer_value(
        const struct completion *completion, const char *placeholder,
        complete_value_fn *values)
{
    char part[64];
    while (words_next(&placeholder, "|[]", part, sizeof part)) {
        for (size_t end = strlen(part); end && part[end - 1] == '.';)
            part[--end] = '\0';
        offer_part(completion, part, values);
    }
}

/* --- commands and options --- */

/* The words that may follow `typed` ("", or the first word of "ckpt ls");
 * `only`: is it one of them? Else all are offered. */
static bool next_words(
        const struct cli_program *program, const char *typed, const char *only,
        const struct completion *completion)
{
    size_t length = strlen(typed);
    char last[64] = "";
    ZD_EACH(command, program->commands, program->command_count) {
        const char *rest = command->name + length;
        char word[64];
        if (strncmp(command->name, typed, length) != 0)
            continue;
        ZD_PRINT(word, "%.*s", (int)strcspn(rest, " "), rest);
        if (only && strcmp(word, only) == 0)
            return true;
        bool is_group = strchr(rest, ' ');
        if (!only && strcmp(word, last) != 0)
            complete_offer(completion, word, is_group ? NULL : command->help);
        strcpy(last, word);
    }
    return false;
}

static void offer_options(
        const struct cli_program *program, const struct cli_command *command,
        const struct completion *completion)
{
    char word[64];
    ZD_EACH(option, program->options, program->option_count) {
        if (!cli_takes(program, command, option))
            continue;
        ZD_PRINT(word, "--%s", option->name);
        complete_offer(completion, word, option->help);
        ZD_PRINT(word, "-%c", option->letter);
        if (option->letter)
            complete_offer(completion, word, option->help);
    }
    if (command == program->unnamed)
        complete_offer(completion, "--version", "Print the version");
}

/* The command whose options come next. */
static const struct cli_command *command_of(
        const struct cli_program *program, const char *typed)
{
    const struct cli_command *command = cli_find_command(program, typed);
    return command ? command : program->unnamed;
}

/* The last word, after `typed` and maybe an option that wants a value. */
static void offer_word(
        const struct cli_program *program, const char *typed,
        const struct cli_option *wants, const char *word,
        complete_value_fn *values)
{
    struct completion completion = {"", word};
    const struct cli_command *command = cli_find_command(program, typed);
    const char *value;
    char before[80];
    if (!wants && strncmp(word, "--", 2) == 0 && strchr(word, '=')) {
        wants = cli_find_option(
                program, command_of(program, typed), word, &value);
        if (!wants)
            return;
        ZD_PRINT(before, "%.*s", (int)(value - word), word);
        completion = (struct completion){before, value};
    }
    if (wants && wants->choices)
        offer_value(&completion, wants->choices, values);
    else if (wants)
        offer_value(&completion, wants->value ? wants->value : "", values);
    else if (word[0] == '-')
        offer_options(program, command_of(program, typed), &completion);
    else if (command)
        offer_value(&completion, command->operands, values);
    else
        next_words(program, typed, NULL, &completion);
}

bool complete_main(
        const struct cli_program *program, int argc, char **argv,
        complete_value_fn *values)
{
    char typed[64] = ""; /* the command so far: "ckpt ", "ckpt ls" */
    const struct cli_option *wants = NULL;
    if (argc < 3 || strcmp(argv[1], "__complete") != 0)
        return false;
    for (int i = 2; i < argc - 1; i++) {
        const char *word = argv[i], *value;
        if (wants)
            wants = NULL;
        else if (word[0] == '-') {
            wants = cli_find_option(
                    program, command_of(program, typed), word, &value);
            if (wants && (value || !wants->value))
                wants = NULL;
        } else if (
                !cli_find_command(program, typed) &&
                next_words(program, typed, word, NULL)) {
            size_t used = strlen(typed);
            snprintf(typed + used, sizeof typed - used, "%s", word);
            if (!cli_find_command(program, typed))
                strncat(typed, " ", sizeof typed - strlen(typed) - 1);
        }
    }
    offer_word(program, typed, wants, argv[argc - 1], values);
    return true;
}

/* --- the shells' part: each asks the program that is typed, and adds files and
 * folders itself --- */

extern const char complete_scripts[]; /* complete_scripts.S */

enum zd_status complete_print_script(
        const char *program, const char *shell, FILE *stream)
{
    struct embedded script = embedded_find(complete_scripts, shell);
    const char *at = script.text, *name;
    if (!script.name) {
        ZD_FAIL(ZD_ERR_USAGE, "E0101", "no completions for `%s`", shell);
        return zd_fail_help("bash, zsh or fish");
    }
    for (; (name = strstr(at, "NAME")); at = name + strlen("NAME"))
        fprintf(stream, "%.*s%s", (int)(name - at), at, program);
    fputs(at, stream);
    return ZD_OK;
}
