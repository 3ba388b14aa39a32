/* program.h - what a program's command line is, as data: zerod (cli.h) and
 * zerodctl (ctl/ctl.h) fill one struct cli_program each. Parsing, --help, man
 * pages and shell completions come from it.
 *
 *   PROGRAM [common options] COMMAND [options and operands]
 *
 * Exit codes: base/status.h; 64 is the command line itself. */
#pragma once

#include "base/status.h"

#include <stdint.h>

enum { CLI_OPERANDS_MAX = 64, CLI_LIST_MAX = 256 };

struct cli_line { /* what every command line has; strings borrowed from argv */
    const char *program; /* argv[0] */
    const char *command; /* its name in the table; NULL: none */
    const char *operands[CLI_OPERANDS_MAX];
    int operand_count;
    bool help;
};

struct cli_list { /* an option that may be repeated */
    const char *items[CLI_LIST_MAX];
    int count;
};

/* What was typed. Each program has one of its own, which begins with a struct
 * cli_line; commands of a program see no other. */
struct cli_args;

enum cli_kind {
    CLI_FLAG,     /* bool */
    CLI_TEXT,     /* const char * */
    CLI_CHOICE,   /* const char *, one of choices */
    CLI_COUNT,    /* int64_t of at least 1 */
    CLI_NUMBER,   /* int64_t of at least 0 */
    CLI_REAL,     /* double of at least 0 */
    CLI_SOME,     /* double above 0 */
    CLI_SHARE,    /* double above 0 and up to 1 */
    CLI_DURATION, /* double, seconds: 90, 90s, 5m, 1h30m, 2d */
    CLI_LIST,     /* struct cli_list of words */
    CLI_SETTING,  /* struct cli_list of section.key=value */
};

struct cli_option {
    const char *name;  /* "job": typed --job F, or --job=F */
    char letter;       /* 'o': typed -o; 0: none */
    const char *value; /* "FILE" in help; NULL for a flag */
    enum cli_kind kind;
    size_t offset;       /* into the program's struct cli_args */
    const char *choices; /* separated by '|' */
    const char *help;    /* one line */
};

struct cli_command {
    const char *name;     /* "run", "ckpt ls" */
    const char *operands; /* "FILE" in help; "" for none */
    int operands_min, operands_max;
    const char *options;  /* names of options, separated by spaces */
    const char *required; /* those that must be given, likewise */
    const char *help;     /* one line */
    enum zd_status (*run)(struct cli_args *args);
    const char *group;   /* "Watch": commands of a group are listed together */
    const char *details; /* what one line does not say, in sentences; or NULL */
};

struct cli_exit {
    int code;
    const char *meaning;
};

struct cli_program {
    const char *name;      /* "zerod" */
    const char *summary;   /* one line, no full stop */
    const char *examples;  /* lines "  COMMAND   what it does\n" */
    const char *hint;      /* help of the error when nothing is typed */
    const char *file_hint; /* .. when the ending of a job file is: "%s" is the
                              word; NULL: none */
    const struct cli_command *commands;
    int command_count;
    const struct cli_command *unnamed; /* run when the first word is an option;
                                          NULL: that must be a common one */
    const struct cli_option *options;  /* 64 at most */
    int option_count;
    const char *common; /* options of every command, also before its name */
    const struct cli_exit *exits;
    int exit_count;
    size_t args_bytes;               /* of its struct cli_args */
    const struct cli_args *defaults; /* what args are before parsing */
    /* What the tables cannot say of a command line; may be NULL. */
    enum zd_status (*check)(
            const struct cli_command *command, const struct cli_args *args);
};

/* By its whole name; NULL: none. */
const struct cli_command *cli_find_command(
        const struct cli_program *program, const char *name);
/* The option of the command that "--name", "--name=value", "-x" or "-xvalue"
 * is; NULL: none. *value_out: NULL when the value is not in the same word. */
const struct cli_option *cli_find_option(
        const struct cli_program *program, const struct cli_command *command,
        const char *text, const char **value_out);
/* Does the command take the option? Common ones and --help: always. A command
 * of NULL: the words before any command. */
bool cli_takes(
        const struct cli_program *program, const struct cli_command *command,
        const struct cli_option *option);

/* parse.c: argv against the tables. `args` (args_bytes of memory) is set to the
 * program's defaults first. ZD_ERR_USAGE with a record. Words before the first
 * option name the command; without one it is `unnamed`. *command_out is NULL
 * for `PROGRAM --help`, and args' help is set when only help is asked for. */
enum zd_status cli_parse(
        const struct cli_program *program, int argc, char **argv,
        struct cli_args *args, const struct cli_command **command_out);
/* "PROGRAM --version": argc and argv as main has them. */
bool cli_is_version(int argc, char **argv);

/* help.c: help of one command, or of the program (NULL). */
void cli_print_help(
        const struct cli_program *program, const struct cli_command *command,
        FILE *stream);
