#include "daemon/cli/program.h"

#include "base/text_buffer.h"

#include <string.h>

enum { HELP_COLUMNS = 78 };

/* Words of `text` in lines of HELP_COLUMNS, the first after `column` ones. */
static void print_wrapped(const char *text, int column, FILE *stream)
{
    while (*text) {
        int word = (int)strcspn(text, " \n");
        if (column > 0 && column + 1 + word > HELP_COLUMNS) {
            fputc('\n', stream);
            column = 0;
        }
        column += fprintf(stream, "%s%.*s", column > 0 ? " " : "", word, text);
        text += word;
        if (*text == '\n') {
            fputc('\n', stream);
            column = 0;
        }
        text += *text != '\0';
    }
    fputc('\n', stream);
}

static void print_option(const struct cli_option *option, FILE *stream)
{
    char left[64];
    ZD_PRINT(
            left, "%c%c%s--%s%s%s", option->letter ? '-' : ' ',
            option->letter ? option->letter : ' ', option->letter ? ", " : "  ",
            option->name, option->value ? " " : "",
            option->value ? option->value : "");
    if (strlen(left) > 30) /* the text on a line of its own */
        fprintf(stream, "  %s\n  %-30s  %s\n", left, "", option->help);
    else
        fprintf(stream, "  %-30s  %s\n", left, option->help);
}

/* Those that are of every command, or those that are not. */
static void print_options(
        const struct cli_program *program, const struct cli_command *command,
        bool common, FILE *stream)
{
    ZD_EACH(option, program->options, program->option_count)
        if (cli_takes(program, command, option) &&
            cli_takes(program, NULL, option) == common)
            print_option(option, stream);
}

static void print_exits(const struct cli_program *program, FILE *stream)
{
    struct text_buffer text = TEXT_BUFFER(1024);
    for (int i = 0; i < program->exit_count; i++)
        text_buffer_add(
                &text, "%s%d %s", i ? ", " : "", program->exits[i].code,
                program->exits[i].meaning);
    text_buffer_add(&text, ".");
    print_wrapped(text.out, fprintf(stream, "Exit codes:"), stream);
}

static void print_program(const struct cli_program *program, FILE *stream)
{
    const char *group = NULL;
    fprintf(stream, "%s - %s\n\n%s", program->name, program->summary,
            program->examples);
    ZD_EACH(command, program->commands, program->command_count) {
        if (!group || strcmp(group, command->group) != 0)
            fprintf(stream, "\n%s:\n", command->group);
        group = command->group;
        fprintf(stream, "  %-14s  %s\n", command->name, command->help);
    }
    if (program->common[0]) { /* more than --help */
        fputs("\noptions of every command:\n", stream);
        print_options(program, NULL, true, stream);
    }
    fprintf(stream,
            "\n`%s COMMAND --help` shows its options; `%s --version` the "
            "version.\n",
            program->name, program->name);
    print_exits(program, stream);
}

void cli_print_help(
        const struct cli_program *program, const struct cli_command *command,
        FILE *stream)
{
    if (!command) {
        print_program(program, stream);
        return;
    }
    fprintf(stream, "%s.\n\nusage: %s %s%s%s [options]\n", command->help,
            program->name, command->name, command->operands[0] ? " " : "",
            command->operands);
    if (command->details) {
        fputc('\n', stream);
        print_wrapped(command->details, 0, stream);
    }
    fputs("\noptions:\n", stream);
    print_options(program, command, false, stream);
    print_options(program, command, true, stream);
}
