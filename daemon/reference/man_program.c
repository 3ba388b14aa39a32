#include "daemon/reference/man.h"

#include "base/must.h"
#include "daemon/reference/roff.h"

#include <stdlib.h>
#include <string.h>

static void put_option_name(FILE *stream, const struct cli_option *option)
{
    if (option->letter)
        fprintf(stream, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", stream);
    roff_inline(stream, option->name);
    fputs("\\fR", stream);
    if (option->value) {
        fputs(" \\fI", stream);
        roff_inline(stream, option->value);
        fputs("\\fR", stream);
    }
}

static void put_synopsis(FILE *stream, const struct cli_program *program)
{
    roff_heading(stream, "SYNOPSIS");
    if (program->unnamed)
        fprintf(stream,
                ".B %s\n\\fB\\-\\-job\\fR \\fIFILE\\fR "
                "[\\fIoptions\\fR]\n.br\n",
                program->name);
    fprintf(stream,
            ".B %s\n[\\fIoptions\\fR] \\fIcommand\\fR [\\fIoptions\\fR] "
            "[\\fIoperands\\fR]\n",
            program->name);
    fprintf(stream, ".br\n.B %s\n\\fB\\-\\-version\\fR [\\fB\\-\\-json\\fR]\n",
            program->name);
}

static void put_paragraphs(FILE *stream, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, "\n");
        char *line = zd_must(strndup(text, length));
        roff_text(stream, line);
        fputs(".PP\n", stream);
        free(line);
        text += length + (text[length] == '\n');
    }
}

static bool is_own(
        const struct cli_program *program, const struct cli_command *command,
        const struct cli_option *option)
{
    return cli_takes(program, command, option) &&
           !cli_takes(program, NULL, option) &&
           strcmp(option->name, "help") != 0;
}

static void put_command(
        FILE *stream, const struct cli_program *program,
        const struct cli_command *command)
{
    fputs(".TP\n\\fB", stream);
    roff_inline(stream, command->name);
    fputs("\\fR", stream);
    if (command->operands[0]) {
        fputs(" \\fI", stream);
        roff_inline(stream, command->operands);
        fputs("\\fR", stream);
    }
    fputc('\n', stream);
    roff_inline(stream, command->help);
    fputs(".\n", stream);
    if (command->details) {
        roff_text(stream, command->details);
    }
    bool is_first = true;
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        if (!is_own(program, command, option))
            continue;
        fputs(is_first ? "Options: " : ", ", stream);
        fputs("\\fB\\-\\-", stream);
        roff_inline(stream, option->name);
        fputs("\\fR", stream);
        is_first = false;
    }
    fputs(is_first ? "" : ".\n", stream);
}

static void put_commands(FILE *stream, const struct cli_program *program)
{
    const char *group = NULL;
    roff_heading(stream, "COMMANDS");
    bool has_groups =
            strcmp(program->commands[0].group,
                   program->commands[program->command_count - 1].group);
    for (int i = 0; i < program->command_count; i++) {
        const struct cli_command *command = &program->commands[i];
        if (has_groups && (!group || strcmp(group, command->group) != 0))
            roff_subheading(stream, command->group);
        group = command->group;
        put_command(stream, program, command);
    }
}

static void put_options(FILE *stream, const struct cli_program *program)
{
    roff_heading(stream, "OPTIONS");
    for (int i = 0; i < program->option_count; i++) {
        const struct cli_option *option = &program->options[i];
        fputs(".TP\n", stream);
        put_option_name(stream, option);
        fputc('\n', stream);
        roff_inline(stream, option->help);
        fputs(".\n", stream);
        if (cli_takes(program, NULL, option) &&
            strcmp(option->name, "help") != 0)
            fputs("Of every command; it may stand before the command.\n",
                  stream);
    }
}

/* "NAME\tWHAT\n" lines as a list. */
static void put_list(FILE *stream, const char *title, const char *lines)
{
    if (!lines)
        return;
    roff_heading(stream, title);
    while (*lines) {
        size_t name = strcspn(lines, "\t"), length = strcspn(lines, "\n");
        char *what = zd_must(strndup(lines + name + 1, length - name - 1));
        char *label = zd_must(strndup(lines, name));
        fputs(".TP\n\\fI", stream);
        roff_inline(stream, label);
        fputs("\\fR\n", stream);
        roff_text(stream, what);
        free(what);
        free(label);
        lines += length + (lines[length] == '\n');
    }
}

static void put_exits(FILE *stream, const struct cli_program *program)
{
    roff_heading(stream, "EXIT STATUS");
    for (int i = 0; i < program->exit_count; i++) {
        fprintf(stream, ".TP\n.B %d\n", program->exits[i].code);
        roff_text(stream, program->exits[i].meaning);
    }
}

void man_put_program(
        FILE *stream, const struct cli_program *program,
        const struct man_notes *notes)
{
    roff_begin(stream, program->name, 1);
    roff_heading(stream, "NAME");
    fprintf(stream, "%s \\- ", program->name);
    roff_inline(stream, program->summary);
    fputc('\n', stream);
    put_synopsis(stream, program);
    roff_heading(stream, "DESCRIPTION");
    put_paragraphs(stream, notes->description);
    roff_example(stream, program->examples);
    put_commands(stream, program);
    put_options(stream, program);
    put_exits(stream, program);
    put_list(stream, "ENVIRONMENT", notes->environment);
    put_list(stream, "FILES", notes->files);
    roff_heading(stream, "SEE ALSO");
    roff_text(stream, notes->see_also);
}
