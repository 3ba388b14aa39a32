/* ctl.h - zerodctl: what was typed, and its commands.
 *
 * Results go to stdout, everything else to stderr. Exit codes: 0, 64 the
 * command line, 66 no such job, 69 no answer, 77 refused. */
#pragma once

#include "daemon/cli/complete.h"
#include "daemon/cli/fill.h"
#include "daemon/cli/look.h"
#include "daemon/ctl/target.h"

struct cli_args { /* strings borrowed from argv */
    struct cli_line line;
    const char *job, *socket, *dir; /* which job */
    const char *output;             /* table | json */
    int64_t rank, tail, since_step, max_new_tokens, port;
    double interval, timeout; /* seconds; 0 and below 0: not given */
    bool watch, follow, csv, with_steps;
    bool now, no_wait, chat;
    /* for the commands: of stdout; the job, once it was found (ctl_target) */
    struct look look;
    struct target target; /* owned */
};

extern const struct cli_program zerodctl_program;

bool ctl_wants_json(const struct cli_args *args);

/* Find the job that args name, or the only one that runs (66 without one, 64
 * with several, named). Says so on stderr when files answer for it. */
enum zd_status ctl_target(struct cli_args *args);

/* Print an object as it came; rows of numbers as lines of CSV. */
void ctl_print_json(const json_t *json, bool on_one_line);
void ctl_print_csv(const json_t *rows);

/* Say that there is no such; NULL. */
void *ctl_unknown(const char *kind, const char *typed);

/* The values after TAB that are not files or words: jobs, settings, keys. */
void ctl_complete_value(
        const struct completion *completion, const char *placeholder);

typedef enum zd_status ctl_command_fn(struct cli_args *args);
ctl_command_fn command_ls, command_logs, command_events, command_web;
ctl_command_fn command_look; /* those that ask and show: view.c */
ctl_command_fn command_act;  /* those that change what a job does */

/* metrics and plot: what the commands that look (view.c) know of them. */
enum { WHAT_MAX = 1024 };

enum zd_status metrics_ask(const struct cli_args *args, char what[WHAT_MAX]);
json_t *metrics_select(const struct cli_args *args, json_t *answer);
void metrics_show(const struct look *look, const json_t *shown);
json_t *plot_select(const struct cli_args *args, json_t *answer);
void plot_show(const struct look *look, const json_t *shown);

/* {"status", "ranks", "history", "log"}: as the paths of that name, history of
 * train/loss and eval/loss, the last lines of the log. Only the status must be
 * there. */
enum zd_status top_get(const struct target *target, json_t **json_out);
/* At most look->rows lines of at most look->columns, whatever the job says. */
void top_show(const struct look *look, const json_t *shown);

/* [{"name", "socket", ..}] of the jobs that run, by their names: with the
 * members of /v1/status where the job answers. New reference. */
json_t *jobs_find(void);
