#include "daemon/cli_parse.h"

#include "daemon/suggest.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USAGE "E0101"

/* --- finding --- */

static const struct cli_command *find_command(
        const char *first, const char *second, int *words_out)
{
    char name[64];
    for (int words = 2; words >= 1; words--) {
        if (words == 2 && !second)
            continue;
        snprintf(
                name, sizeof name, "%s%s%s", first, words == 2 ? " " : "",
                words == 2 ? second : "");
        for (int i = 0; i < cli_command_count; i++)
            if (strcmp(cli_commands[i].name, name) == 0) {
                *words_out = words;
                return &cli_commands[i];
            }
    }
    return NULL;
}

static enum zd_status tell_unknown_command(
        const char *first, const char *second)
{
    char typed[64];
    const char *best = NULL;
    int best_distance = INT_MAX;
    bool is_group = false; /* "ckpt" alone */
    for (int i = 0; i < cli_command_count; i++) {
        size_t length = strlen(first);
        is_group = is_group ||
                   (strncmp(cli_commands[i].name, first, length) == 0 &&
                    cli_commands[i].name[length] == ' ');
    }
    bool two = second && second[0] != '-' && is_group;
    snprintf(
            typed, sizeof typed, "%s%s%s", first, two ? " " : "",
            two ? second : "");
    for (int i = 0; i < cli_command_count; i++) {
        int distance = edit_distance(typed, cli_commands[i].name);
        if (suggest_is_near(typed, distance) && distance < best_distance) {
            best = cli_commands[i].name;
            best_distance = distance;
        }
    }
    if (is_group && !two)
        ZD_FAIL(ZD_ERR_USAGE, USAGE, "`%s` needs another word", first);
    else
        ZD_FAIL(ZD_ERR_USAGE, USAGE, "no command `%s`", typed);
    if (best)
        zd_fail_help("did you mean `%s`?", best);
    else
        zd_fail_help("zerod --help lists the commands");
    return ZD_ERR_USAGE;
}

/* Is `name` one of the words of `list`? */
static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ' ') &&
            (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static bool takes(
        const struct cli_command *command, const struct cli_option *option)
{
    return strcmp(option->name, "help") == 0 ||
           list_has(command->options, option->name);
}

static enum zd_status tell_unknown_option(
        const struct cli_command *command, const char *typed)
{
    const char *best = NULL;
    int best_distance = INT_MAX;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(typed, "="), typed);
    for (int i = 0; i < cli_option_count; i++) {
        int distance =
                edit_distance(name + strspn(name, "-"), cli_options[i].name);
        if (takes(command, &cli_options[i]) &&
            suggest_is_near(name, distance) && distance < best_distance) {
            best = cli_options[i].name;
            best_distance = distance;
        }
    }
    ZD_FAIL(ZD_ERR_USAGE, USAGE, "`zerod %s` has no option `%s`", command->name,
            name);
    if (best)
        zd_fail_help("did you mean `--%s`?", best);
    else
        zd_fail_help("zerod %s --help lists them", command->name);
    return ZD_ERR_USAGE;
}

/* --- values --- */

static enum zd_status fail_value(
        const struct cli_option *option, const char *text, const char *accepts)
{
    return ZD_FAIL(
            ZD_ERR_USAGE, USAGE, "--%s takes %s, not `%s`", option->name,
            accepts, text);
}

static enum zd_status set_count(
        const struct cli_option *option, const char *text,
        struct cli_args *args)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool from_one = option->kind == CLI_COUNT;
    if (errno || end == text || *end || value < from_one || value > INT_MAX)
        return fail_value(
                option, text, from_one ? "a number from 1" : "a number from 0");
    *(int64_t *)((char *)args + option->offset) = value;
    return ZD_OK;
}

static enum zd_status set_real(
        const struct cli_option *option, const char *text,
        struct cli_args *args)
{
    char *end;
    double value = strtod(text, &end);
    bool is_share = strcmp(option->name, "top-p") == 0;
    if (end == text || *end || !isfinite(value) || value < 0 ||
        (is_share && (value <= 0 || value > 1)))
        return fail_value(
                option, text,
                is_share ? "a number above 0 and up to 1"
                         : "a number of at least 0");
    *(double *)((char *)args + option->offset) = value;
    return ZD_OK;
}

static enum zd_status set_choice(
        const struct cli_option *option, const char *text,
        struct cli_args *args)
{
    size_t length = strlen(text);
    for (const char *at = option->choices; at;) {
        size_t word = strcspn(at, "|");
        if (word == length && strncmp(at, text, length) == 0) {
            *(const char **)((char *)args + option->offset) = text;
            return ZD_OK;
        }
        at = at[word] ? at + word + 1 : NULL;
    }
    return fail_value(option, text, option->choices);
}

static enum zd_status add_set(const char *text, struct cli_args *args)
{
    if (text[strspn(text, " \t")] == '=' || !strchr(text, '=')) {
        ZD_FAIL(ZD_ERR_USAGE, USAGE, "--set takes section.key=value, not `%s`",
                text);
        zd_fail_help("like --set optim.learning_rate=1e-4");
        return ZD_ERR_USAGE;
    }
    if (args->set_count == CLI_SETS_MAX)
        return ZD_FAIL(
                ZD_ERR_USAGE, USAGE, "more than %d --set options",
                CLI_SETS_MAX);
    args->sets[args->set_count++] = text;
    return ZD_OK;
}

static enum zd_status set_value(
        const struct cli_option *option, const char *text,
        struct cli_args *args)
{
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)((char *)args + option->offset) = true;
        return ZD_OK;
    case CLI_TEXT:
        *(const char **)((char *)args + option->offset) = text;
        return ZD_OK;
    case CLI_CHOICE:
        return set_choice(option, text, args);
    case CLI_COUNT:
    case CLI_NUMBER:
        return set_count(option, text, args);
    case CLI_REAL:
        return set_real(option, text, args);
    case CLI_SETTING:
        return add_set(text, args);
    }
    return ZD_OK;
}

/* --- the line --- */

/* "--name", "--name=value" or "-x"; *value_out stays NULL without '='. */
static const struct cli_option *match_option(
        const struct cli_command *command, const char *text,
        const char **value_out)
{
    for (int i = 0; i < cli_option_count; i++) {
        const struct cli_option *option = &cli_options[i];
        if (!takes(command, option))
            continue;
        if (option->letter && text[0] == '-' && text[1] == option->letter &&
            !text[2])
            return option;
        size_t length = strlen(option->name);
        if (strncmp(text, "--", 2) != 0 ||
            strncmp(text + 2, option->name, length) != 0)
            continue;
        if (text[2 + length] == '=')
            *value_out = text + 3 + length;
        if (text[2 + length] == '=' || text[2 + length] == '\0')
            return option;
    }
    return NULL;
}

static enum zd_status add_operand(
        const struct cli_command *command, const char *text,
        struct cli_args *args)
{
    if (args->operand_count == command->operands_max)
        return ZD_FAIL(
                ZD_ERR_USAGE, USAGE,
                "`zerod %s` does not know what to do with `%s`", command->name,
                text);
    args->operands[args->operand_count++] = text;
    return ZD_OK;
}

static enum zd_status parse_options(
        const struct cli_command *command, int argc, char **argv,
        struct cli_args *args, uint32_t *given)
{
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        const char *text = argv[i], *value = NULL;
        if (!only_operands && strcmp(text, "--") == 0) {
            only_operands = true;
            continue;
        }
        if (only_operands || text[0] != '-' || !text[1]) {
            ZD_TRY(add_operand(command, text, args));
            continue;
        }
        const struct cli_option *option = match_option(command, text, &value);
        if (!option)
            return tell_unknown_option(command, text);
        if (!option->value && value)
            return ZD_FAIL(
                    ZD_ERR_USAGE, USAGE, "--%s takes no value", option->name);
        if (option->value && !value && i + 1 == argc)
            return ZD_FAIL(
                    ZD_ERR_USAGE, USAGE, "--%s needs a value: %s", option->name,
                    option->value);
        if (option->value && !value)
            value = argv[++i];
        ZD_TRY(set_value(option, value, args));
        *given |= 1u << (option - cli_options);
    }
    return ZD_OK;
}

static enum zd_status check_complete(
        const struct cli_command *command, const struct cli_args *args,
        uint32_t given)
{
    bool takes_job = list_has(command->options, "job");
    bool by_operand = takes_job && command->operands_max == 1;
    if (takes_job && args->job && args->operand_count)
        return ZD_FAIL(
                ZD_ERR_USAGE, USAGE,
                "the job file is given twice: `%s` and `%s`", args->job,
                args->operands[0]);
    if (args->operand_count < command->operands_min ||
        (by_operand && !args->job && !args->operand_count)) {
        ZD_FAIL(ZD_ERR_USAGE, USAGE, "`zerod %s` needs %s", command->name,
                by_operand ? "a job file" : command->operands);
        zd_fail_help("zerod %s --help", command->name);
        return ZD_ERR_USAGE;
    }
    for (int i = 0; i < cli_option_count; i++)
        if (list_has(command->required, cli_options[i].name) &&
            !(given & 1u << i)) {
            ZD_FAIL(ZD_ERR_USAGE, USAGE, "`zerod %s` needs --%s %s",
                    command->name, cli_options[i].name, cli_options[i].value);
            zd_fail_help("zerod %s --help", command->name);
            return ZD_ERR_USAGE;
        }
    return ZD_OK;
}

enum zd_status cli_parse(
        int argc, char **argv, struct cli_args *args,
        const struct cli_command **command_out)
{
    int words = 0;
    uint32_t given = 0;
    const struct cli_command *command = &cli_commands[0];
    *args = (struct cli_args){
            .program = argv[0],
            .max_steps = -1,
            .stop_after = -1,
            .max_new_tokens = 64,
            .top_p = 1};
    if (argc < 2) {
        ZD_FAIL(ZD_ERR_USAGE, USAGE, "nothing to do");
        zd_fail_help("zerod --job job.toml trains; zerod --help lists the "
                     "commands");
        return ZD_ERR_USAGE;
    }
    bool is_help = strcmp(argv[1], "help") == 0;
    if (is_help || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        args->help = true;
        *command_out = NULL;
        if (argc == 2 || !is_help)
            return ZD_OK;
        argv++; /* zerod help ckpt ls */
        argc--;
    }
    if (argv[1][0] != '-') {
        command = find_command(argv[1], argc > 2 ? argv[2] : NULL, &words);
        if (!command)
            return tell_unknown_command(argv[1], argc > 2 ? argv[2] : NULL);
    }
    *command_out = command;
    ZD_TRY(parse_options(
            command, argc - 1 - words, argv + 1 + words, args, &given));
    if (args->help)
        return ZD_OK;
    return check_complete(command, args, given);
}

/* --- help --- */

static void print_option(const struct cli_option *option, FILE *stream)
{
    char left[64];
    snprintf(
            left, sizeof left, "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
            option->letter ? option->letter : ' ', option->letter ? ", " : "  ",
            option->name, option->value ? " " : "",
            option->value ? option->value : "");
    if (strlen(left) > 30) /* the text on a line of its own */
        fprintf(stream, "  %s\n  %-30s  %s\n", left, "", option->help);
    else
        fprintf(stream, "  %-30s  %s\n", left, option->help);
}

static void print_program_help(FILE *stream)
{
    fputs("zerod - trains language models with ZeRO over MPI\n\n"
          "  zerod --job FILE                  train on one rank\n"
          "  mpirun -np 8 zerod --job FILE     train on eight\n\n"
          "commands:\n",
          stream);
    for (int i = 0; i < cli_command_count; i++)
        fprintf(stream, "  %-14s  %s\n", cli_commands[i].name,
                cli_commands[i].help);
    fputs("\n`zerod COMMAND --help` shows its options; `zerod --version "
          "[--json]` the version.\n"
          "Exit codes: 0 done, 64 command line, 65 bad data, 66 missing input, "
          "69 does not fit,\n"
          "73 cannot create, 74 I/O, 75 stopped early (start again to resume), "
          "77 permission,\n"
          "78 job file, 79 diverged.\n",
          stream);
}

void cli_print_help(const struct cli_command *command, FILE *stream)
{
    if (!command) {
        print_program_help(stream);
        return;
    }
    fprintf(stream, "%s.\n\nusage: zerod %s%s%s [options]\n\noptions:\n",
            command->help, command->name, command->operands[0] ? " " : "",
            command->operands);
    for (int i = 0; i < cli_option_count; i++)
        if (takes(command, &cli_options[i]))
            print_option(&cli_options[i], stream);
}
