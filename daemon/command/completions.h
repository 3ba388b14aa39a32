/* completions.h - what a shell offers behind TAB, from the tables of a program:
 * commands, options, their words, files and folders where the table says FILE
 * or DIR, names of running jobs where it says JOB, keys where it says so.
 *
 * A name of a job is a file's: only sockets of one's own in folders of one's
 * own are offered, only names that mean nothing to a shell, and none is ever
 * expanded. */
#ifndef ZD_DAEMON_COMMAND_COMPLETIONS_H
#define ZD_DAEMON_COMMAND_COMPLETIONS_H

#include "daemon/cli/program.h"

#include <stdio.h>

struct completion_key {
    const char *name;   /* "optim.name", typed optim.name=VALUE */
    const char *values; /* words separated by spaces; "" when there are none */
    bool is_file;       /* its value may name a file */
};

/* What stands for a placeholder of the tables beside those above. Arrays of it
 * end with a NULL placeholder; at most one has keys. */
struct completion_keys {
    const char *placeholder; /* "SECTION.KEY=VALUE" */
    const struct completion_key *keys;
    int count;
    const char *words; /* instead of keys: separated by spaces */
};

/* The script for "bash", "zsh" or "fish". `keys` may be NULL. ZD_ERR_USAGE for
 * another shell. */
enum zd_status completions_print(
        const struct cli_program *program, const struct completion_keys *keys,
        const char *shell, FILE *stream);

/* The keys of job.toml that --set may have, in the order of the schema; two
 * elements. The caller frees with completion_job_keys_free. */
struct completion_keys *completion_job_keys(void);
void completion_job_keys_free(struct completion_keys *keys);

#endif
