/* act.h - give a job a command and wait for what comes of it. */
#ifndef ZD_CTL_ACT_H
#define ZD_CTL_ACT_H

#include "daemon/ctl/ctl.h"

/* POST `body` (taken over; "wait" is added as args say). A wait of more than a
 * second says on stderr what it waits for; Ctrl-C ends this program, says that
 * the command stays queued, and changes nothing else.
 * `answer_out`: the job's object, {"accepted"} or {"done", "step", "result"}.
 * `limit`: seconds after which the wait is given up (69); 0: none. */
enum zd_status act_post(
        const struct target *target, const struct cli_args *args,
        const char *command, json_t *body, double limit, json_t **answer_out);
/* KEY=VALUE words as the body of /v1/set: {"learning_rate": 1e-4, ..}. Sections
 * may stand before a key. ZD_ERR_USAGE with a record. */
enum zd_status act_parse_settings(
        const char *const *words, int count, json_t **body_out);

#endif
