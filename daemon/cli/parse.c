#include "daemon/cli/program.h"

#include "base/suggest.h"
#include "base/text_buffer.h"
#include "base/words.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...) ZD_FAIL(ZD_ERR_USAGE, "E0101", __VA_ARGS__)

/* --- finding --- */

const struct cli_command *cli_find_command(
        const struct cli_program *program, const char *name)
{
    for (int i = 0; i < program->command_count; i++)
        if (strcmp(program->commands[i].name, name) == 0)
            return &program->commands[i];
    return NULL;
}

/* "ckpt ls", or "run". */
static const struct cli_command *find_words(
        const struct cli_program *program, const char *first,
        const char *second, int *words_out)
{
    char name[64];
    ZD_PRINT(name, "%s %s", first, second ? second : "");
    const struct cli_command *found = cli_find_command(program, name);
    *words_out = found ? 2 : 1;
    return found ? found : cli_find_command(program, first);
}

/* "`zerod ckpt ls`, .."; "": no command begins with that word. */
static void list_group(
        const struct cli_program *program, const char *word,
        struct text_buffer *out)
{
    size_t length = strlen(word);
    for (int i = 0; i < program->command_count; i++) {
        const char *name = program->commands[i].name;
        if (strncmp(name, word, length) == 0 && name[length] == ' ')
            text_buffer_add(
                    out, "%s`%s %s`", out->used ? ", " : "", program->name,
                    name);
    }
}

static enum zd_status tell_unknown_command(
        const struct cli_program *program, const char *first,
        const char *second)
{
    char typed[64], group[160] = ""; /* the commands of "ckpt" alone */
    struct text_buffer words = {group, sizeof group, 0};
    struct suggestion nearest = {0};
    list_group(program, first, &words);
    bool two = second && second[0] != '-' && words.used;
    bool needs_word = words.used && !two;
    ZD_PRINT(typed, "%s%s%s", first, two ? " " : "", two ? second : "");
    for (int i = 0; i < program->command_count; i++) {
        const char *name = program->commands[i].name;
        suggest_offer(&nearest, typed, edit_distance(typed, name), name);
    }
    const char *ending = strrchr(first, '.');
    FAIL(needs_word ? "`%s` needs another word" : "no command `%s`", typed);
    if (program->file_hint && ending && !strcmp(ending, ".toml"))
        return zd_fail_help(program->file_hint, first);
    if (needs_word)
        return zd_fail_help("%s", group);
    if (nearest.word)
        return zd_fail_help("did you mean `%s`?", nearest.word);
    return zd_fail_help("%s --help lists the commands", program->name);
}

bool cli_takes(
        const struct cli_program *program, const struct cli_command *command,
        const struct cli_option *option)
{
    return strcmp(option->name, "help") == 0 ||
           words_have(program->common, " ", option->name) ||
           (command && words_have(command->options, " ", option->name));
}

const struct cli_option *cli_find_option(
        const struct cli_program *program, const struct cli_command *command,
        const char *text, const char **value_out)
{
    *value_out = NULL;
    ZD_EACH(option, program->options, program->option_count) {
        if (!cli_takes(program, command, option))
            continue;
        if (option->letter && text[0] == '-' && text[1] == option->letter &&
            (!text[2] || option->value)) {
            *value_out = text[2] ? text + 2 : NULL;
            return option;
        }
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

static enum zd_status tell_unknown_option(
        const struct cli_program *program, const struct cli_command *command,
        const char *typed)
{
    struct suggestion nearest = {0};
    const char *space = command ? " " : "",
               *words = command ? command->name : "";
    char name[64];
    ZD_PRINT(name, "%.*s", (int)strcspn(typed, "="), typed);
    ZD_EACH(option, program->options, program->option_count) {
        int distance = edit_distance(name + strspn(name, "-"), option->name);
        if (cli_takes(program, command, option))
            suggest_offer(&nearest, name, distance, option->name);
    }
    FAIL("`%s%s%s` has no option `%s`", program->name, space, words, name);
    if (nearest.word)
        return zd_fail_help("did you mean `--%s`?", nearest.word);
    return zd_fail_help(
            "%s%s%s --help lists them", program->name, space, words);
}

/* --- values --- */

static enum zd_status fail_value(
        const struct cli_option *option, const char *text, const char *accepts)
{
    return FAIL("--%s takes %s, not `%s`", option->name, accepts, text);
}

static enum zd_status set_number(
        const struct cli_option *option, const char *text, void *out)
{
    static const struct range {
        bool is_whole, is_above; /* is `least` itself too little? */
        double least, most;
        const char *accepts;
    } ranges[] = {
            [CLI_COUNT] = {true, false, 1, INT_MAX, "a number from 1"},
            [CLI_NUMBER] = {true, false, 0, INT_MAX, "a number from 0"},
            [CLI_REAL] = {false, false, 0, DBL_MAX, "a number of at least 0"},
            [CLI_SOME] = {false, true, 0, DBL_MAX, "a number above 0"},
            [CLI_SHARE] = {false, true, 0, 1, "a number above 0 and up to 1"}};
    const struct range *range = &ranges[option->kind];
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end ||
        (range->is_whole && strspn(text, "0123456789") < strlen(text)) ||
        !(value >= range->least && value <= range->most) ||
        (range->is_above && value == range->least))
        return fail_value(option, text, range->accepts);
    if (range->is_whole)
        *(int64_t *)out = (int64_t)value;
    else
        *(double *)out = value;
    return ZD_OK;
}

/* Seconds of "90", "90s", "5m", "1h30m", "2d"; false: none of these. */
static bool parse_duration(const char *text, double *seconds_out)
{
    char *end;
    double seconds = strtod(text, &end);
    bool is_bare = *text && strspn(text, "0123456789.") == strlen(text);
    if (!is_bare && !words_duration(text, &seconds))
        return false;
    if ((is_bare && *end) || !isfinite(seconds))
        return false;
    *seconds_out = seconds;
    return true;
}

static enum zd_status add_to_list(
        const struct cli_option *option, const char *text,
        struct cli_list *list)
{
    bool is_setting = option->kind == CLI_SETTING;
    if (is_setting &&
        (text[strspn(text, " \t")] == '=' || !strchr(text, '='))) {
        FAIL("--%s takes section.key=value, not `%s`", option->name, text);
        return zd_fail_help("like --%s optim.learning_rate=1e-4", option->name);
    }
    if (list->count == CLI_LIST_MAX)
        return FAIL("more than %d --%s options", CLI_LIST_MAX, option->name);
    list->items[list->count++] = text;
    return ZD_OK;
}

static enum zd_status set_value(
        const struct cli_option *option, const char *text,
        struct cli_args *args)
{
    void *out = (char *)args + option->offset;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)out = true;
        return ZD_OK;
    case CLI_CHOICE:
        if (!words_have(option->choices, "|", text))
            return fail_value(option, text, option->choices);
        /* fall through */
    case CLI_TEXT:
        *(const char **)out = text;
        return ZD_OK;
    case CLI_DURATION:
        if (!parse_duration(text, out))
            return fail_value(option, text, "a time like 90s, 5m or 1h30m");
        return ZD_OK;
    case CLI_LIST:
    case CLI_SETTING:
        return add_to_list(option, text, out);
    default:
        return set_number(option, text, out);
    }
}

/* --- the line --- */

/* What is being parsed: the words of one command, or those before any. */
struct parse {
    const struct cli_program *program;
    const struct cli_command *command; /* NULL: before the command */
    struct cli_args *args;
    uint64_t given; /* bits of program->options */
};

static enum zd_status add_operand(struct parse *parse, const char *text)
{
    struct cli_line *line = (struct cli_line *)parse->args;
    if (line->operand_count == parse->command->operands_max) {
        FAIL("`%s %s` has no use for the argument `%s`", parse->program->name,
             parse->command->name, text);
        const char *value;
        if (cli_find_option(parse->program, parse->command, "-j", &value))
            return zd_fail_help("-j %s, if that is the name of a job", text);
        return zd_fail_help(
                "%s %s --help shows what it takes", parse->program->name,
                parse->command->name);
    }
    line->operands[line->operand_count++] = text;
    return ZD_OK;
}

/* argv[*at] is an option; its value may be the next word. */
static enum zd_status parse_option(
        struct parse *parse, int argc, char **argv, int *at)
{
    const char *text = argv[*at], *value;
    const struct cli_option *option =
            cli_find_option(parse->program, parse->command, text, &value);
    if (!option)
        return tell_unknown_option(parse->program, parse->command, text);
    if (!option->value && value)
        return FAIL("--%s takes no value", option->name);
    if (option->value && !value && *at + 1 == argc)
        return FAIL("--%s needs a value: %s", option->name, option->value);
    if (option->value && !value)
        value = argv[++*at];
    parse->given |= UINT64_C(1) << (option - parse->program->options);
    return set_value(option, value, parse->args);
}

/* Before a command (NULL) it stops at the first word that is no option; *at_out
 * is its index. */
static enum zd_status parse_words(
        struct parse *parse, int argc, char **argv, int *at_out)
{
    bool only_operands = false;
    int i;
    for (i = 0; i < argc; i++) {
        const char *text = argv[i];
        bool is_option = !only_operands && text[0] == '-' && text[1];
        if (!is_option && !parse->command)
            break;
        if (is_option && strcmp(text, "--") == 0)
            only_operands = true;
        else if (is_option)
            ZD_TRY(parse_option(parse, argc, argv, &i));
        else
            ZD_TRY(add_operand(parse, text));
    }
    *at_out = i;
    return ZD_OK;
}

static enum zd_status fail_incomplete(
        const struct parse *parse, const char *what, const char *value)
{
    FAIL("`%s %s` needs %s%s%s", parse->program->name, parse->command->name,
         what, value ? " " : "", value ? value : "");
    return zd_fail_help(
            "%s %s --help", parse->program->name, parse->command->name);
}

static enum zd_status check_complete(const struct parse *parse)
{
    const struct cli_program *program = parse->program;
    const struct cli_line *line = (const struct cli_line *)parse->args;
    if (program->check)
        ZD_TRY(program->check(parse->command, parse->args));
    if (line->operand_count < parse->command->operands_min)
        return fail_incomplete(parse, parse->command->operands, NULL);
    for (int i = 0; i < program->option_count; i++)
        if (words_have(
                    parse->command->required, " ", program->options[i].name) &&
            !(parse->given & UINT64_C(1) << i)) {
            char typed[64];
            ZD_PRINT(typed, "--%s", program->options[i].name);
            return fail_incomplete(parse, typed, program->options[i].value);
        }
    return ZD_OK;
}

enum zd_status cli_parse(
        const struct cli_program *program, int argc, char **argv,
        struct cli_args *args, const struct cli_command **command_out)
{
    struct parse parse = {.program = program, .args = args};
    struct cli_line *line = (struct cli_line *)args;
    int words = 0, at = 0;
    assert(program->option_count <= 64);
    memcpy(args, program->defaults, program->args_bytes);
    line->program = argv[0];
    *command_out = NULL;
    argv++;
    argc--;
    if (argc > 0 && strcmp(argv[0], "help") == 0) { /* help ckpt ls */
        line->help = true;
        argv++;
        argc--;
    } else if (
            argc > 0 &&
            (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        line->help = true;
        return ZD_OK;
    }
    if (!program->unnamed) {
        ZD_TRY(parse_words(&parse, argc, argv, &at));
        argv += at;
        argc -= at;
    }
    if (argc == 0 && line->help)
        return ZD_OK;
    if (argc == 0) {
        FAIL("nothing to do");
        return zd_fail_help("%s", program->hint);
    }
    parse.command = program->unnamed;
    if (!program->unnamed || argv[0][0] != '-') {
        const char *second = argc > 1 ? argv[1] : NULL;
        parse.command = find_words(program, argv[0], second, &words);
        if (!parse.command)
            return tell_unknown_command(program, argv[0], second);
    }
    *command_out = parse.command;
    line->command = parse.command->name;
    ZD_TRY(parse_words(&parse, argc - words, argv + words, &at));
    return line->help ? ZD_OK : check_complete(&parse);
}

bool cli_is_version(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--version") == 0;
}
