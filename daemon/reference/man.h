/* man.h - the man pages. */
#ifndef ZD_DAEMON_REFERENCE_MAN_H
#define ZD_DAEMON_REFERENCE_MAN_H

#include "daemon/cli/program.h"

#include <stdio.h>

/* What the tables do not say; words between backticks are bold. */
struct man_notes {
    const char *description; /* paragraphs separated by newlines */
    const char *files;       /* "PATH\tWHAT\n".. */
    const char *environment; /* "NAME\tWHAT\n".. */
    const char *see_also;    /* one line */
};
/* zerod(1), zerodctl(1): what --help tells, of all commands. */
void man_put_program(
        FILE *stream, const struct cli_program *program,
        const struct man_notes *notes);
extern const struct man_notes man_zerod, man_zerodctl;

/* job.toml(5): every key. */
void man_put_job(FILE *stream);

#endif
