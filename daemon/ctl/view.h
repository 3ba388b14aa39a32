/* view.h - the commands that look: what is asked, and how the answer is shown,
 * once or again and again until the job or the user ends. */
#ifndef ZD_CTL_VIEW_H
#define ZD_CTL_VIEW_H

#include "daemon/ctl/ctl.h"

enum { WHAT_MAX = 1024 };

struct view {
    const char *command, *what; /* GET `what`, .. */
    /* .. or what it says. A record where what was typed names nothing. */
    enum zd_status (*ask)(
            const struct cli_args *args, const struct target *target,
            char what[WHAT_MAX]);
    /* Cuts the answer to what was typed, and returns what is shown of it (a
     * table of CSV if it is a list). NULL and a record: what was typed names
     * nothing. Not given: the answer. */
    json_t *(*select)(const struct cli_args *args, json_t *answer);
    const char *rows; /* the list of an object that is a table of CSV; NULL: the
                         object is one row */
    void (*show)(const struct look *look, const json_t *shown, FILE *out);
    /* What a pipe gets of one round; may be NULL. */
    void (*line)(const struct look *look, const json_t *shown, FILE *out);
};

/* As args say: once, or with --watch every --interval seconds (2). On a
 * terminal each replaces the last; CSV and JSON follow each other. A job that
 * ends ends it with ZD_OK; after the status of a run that died comes E1099
 * (69). */
enum zd_status view_run(const struct cli_args *args, const struct view *view);

/* metrics and plot */
enum zd_status metrics_ask(
        const struct cli_args *args, const struct target *target,
        char what[WHAT_MAX]);
json_t *metrics_select(const struct cli_args *args, json_t *answer);
void metrics_show(const struct look *look, const json_t *shown, FILE *out);
json_t *plot_select(const struct cli_args *args, json_t *answer);
void plot_show(const struct look *look, const json_t *shown, FILE *out);

/* Say that none of `names` is `typed`, or ends so after `separator`; NULL. */
void *view_unknown(
        const char *kind, const json_t *names, const char *typed,
        char separator);

#endif
