/* show.h - objects of docs/control.md as text, for any width. */
#ifndef ZD_CTL_SHOW_H
#define ZD_CTL_SHOW_H

#include "base/file/json.h"
#include "daemon/ctl/look.h"

void show_status(const struct look *look, const json_t *status, FILE *out);
/* One line: "20:33:53 running step 120/400 (30%) loss 2.3100 ..". */
void show_status_line(const struct look *look, const json_t *status, FILE *out);
/* `jobs`: list of statuses, with "name" and "socket" beside. */
void show_jobs(const struct look *look, const json_t *jobs, FILE *out);
void show_ranks(const struct look *look, const json_t *answer, FILE *out);
void show_memory(const struct look *look, const json_t *answer, FILE *out);
void show_samples(const struct look *look, const json_t *answer, FILE *out);
/* `data` of an event as one line. */
void show_event(const struct look *look, const json_t *event, FILE *out);
/* Its state in words: "died after step 7". */
const char *status_state(const json_t *status, char text[TEXT_SHORT]);
/* step / max_steps; 0 where one is unknown. */
double status_share(const json_t *status);

#endif
