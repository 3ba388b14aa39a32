/* dir.h - what the files of an output folder say, in the objects of
 * docs/control.md. */
#ifndef ZD_CTL_DIR_H
#define ZD_CTL_DIR_H

#include "daemon/ctl/target.h"

/* Parts of `what` as target_get has them. `file`: status.json. */
enum zd_status dir_get(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out);
/* The event of a hang, if it is the last of the run: it ended the run. NULL: it
 * is not. New reference. */
json_t *dir_hang(const char *dir);
/* How the run that began at `started` failed, as train/trainer/crash_guard.h
 * has it for the next start: {"how", "step", "code", "what"}. NULL: it is not
 * known. New reference. */
json_t *dir_cause(const char *dir, double started);
enum zd_status dir_stream(const char *dir, const struct target_stream *stream);
/* Seconds since 1970 of a line of a log ("2026-11-21T20:33:53Z ..", or JSON
 * with "time") or an event; 0: it has none. */
double dir_line_time(const char *line);

#endif
