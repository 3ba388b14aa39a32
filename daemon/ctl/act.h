/* act.h - give a job a command and wait for what comes of it. */
#ifndef ZD_CTL_ACT_H
#define ZD_CTL_ACT_H

#include "daemon/ctl/ctl.h"

/* POST `body` (taken over) with "wait". A wait of more than a second says on
 * stderr what it waits for; Ctrl-C ends this program, says that the command
 * stays queued, and changes nothing else. `answer_out`: the job's object,
 * {"accepted"} or {"done", "step", "result"}. `limit`: seconds after which the
 * wait is given up (69); 0: none. */
struct act {
    const char *command, *waits_for;
    json_t *body;
    bool waits;
    double limit;
};
enum zd_status act_post(
        const struct target *target, const struct act *act,
        json_t **answer_out);

#endif
