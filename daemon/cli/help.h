/* help.h - help texts from the tables of a program. */
#pragma once

#include "daemon/cli/program.h"

/* Help of one command, or of the program (NULL). */
void cli_print_help(
        const struct cli_program *program, const struct cli_command *command,
        FILE *stream);
