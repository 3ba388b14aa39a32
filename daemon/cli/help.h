/* help.h - help texts from the tables of a program. */
#ifndef ZD_DAEMON_CLI_HELP_H
#define ZD_DAEMON_CLI_HELP_H

#include "daemon/cli/program.h"

/* Help of one command, or of the program (NULL). */
void cli_print_help(
        const struct cli_program *program, const struct cli_command *command,
        FILE *stream);

#endif
