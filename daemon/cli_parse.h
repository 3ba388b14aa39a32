/* cli_parse.h - argv against the tables of cli.h. */
#ifndef ZD_DAEMON_CLI_PARSE_H
#define ZD_DAEMON_CLI_PARSE_H

#include "daemon/cli.h"

/* ZD_ERR_USAGE with a record. Words before the first option name the command;
 * without one it is "run". *command_out is NULL for `zerod --help`. */
enum zd_status cli_parse(
        int argc, char **argv, struct cli_args *args,
        const struct cli_command **command_out);
/* Help of one command, or of the program (NULL). */
void cli_print_help(const struct cli_command *command, FILE *stream);

#endif
