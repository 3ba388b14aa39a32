/* parse.h - argv against the tables of a program. */
#pragma once

#include "daemon/cli/program.h"

/* `args` (args_bytes of memory) is set to the program's defaults first.
 * ZD_ERR_USAGE with a record. Words before the first option name the command;
 * without one it is `unnamed`. *command_out is NULL for `PROGRAM --help`, and
 * args' help is set when only help is asked for. */
enum zd_status cli_parse(
        const struct cli_program *program, int argc, char **argv,
        struct cli_args *args, const struct cli_command **command_out);
/* "PROGRAM --version": argc and argv as main has them. */
bool cli_is_version(int argc, char **argv);
