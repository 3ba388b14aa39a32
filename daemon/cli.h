/* cli.h - the command line: one function per command, results on stdout. */
#ifndef ZD_DAEMON_CLI_H
#define ZD_DAEMON_CLI_H

/* Runs the command and gives the exit code of the process. */
int cli_main(int argc, char **argv);

#endif
