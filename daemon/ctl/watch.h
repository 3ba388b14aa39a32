/* watch.h - the same screen again and again, until the job or the user ends. */
#ifndef ZD_CTL_WATCH_H
#define ZD_CTL_WATCH_H

#include "daemon/ctl/ctl.h"

/* GET `what` and show it, as args say: once, or with --watch every --interval
 * seconds (2). On a terminal each replaces the last, and CSV and JSON follow
 * each other everywhere. `line` (may be NULL) shows what a pipe gets of one
 * round. `rows`: the list of the object that is a table of CSV; NULL: the
 * object is one row. A job that ends ends the watch with ZD_OK; after the
 * status of a run that died comes E1099 (69). */
struct watch {
    const char *command, *what, *rows;
    void (*show)(const struct look *look, const json_t *answer, FILE *out);
    void (*line)(const struct look *look, const json_t *answer, FILE *out);
};
enum zd_status watch_run(
        const struct cli_args *args, const struct watch *watch);

#endif
