/* run_state_rings.h - the events, warnings and samples that a state of the run
 * keeps: rings, the oldest goes first. Internal to run_state. */
#ifndef ZD_DAEMON_STATE_RUN_STATE_RINGS_H
#define ZD_DAEMON_STATE_RUN_STATE_RINGS_H

#include "daemon/state/run_state.h"

struct message_event;

void run_state_rings_init(struct run_state *state);
void run_state_rings_fini(struct run_state *state);
/* Returns the event as it is kept, borrowed until the next call. */
const struct kept_event *run_state_keep_event(
        struct run_state *state, const struct message_event *event);
/* `members`: of the event's text. */
void run_state_keep_warning(
        struct run_state *state, const struct message_event *event,
        const json_t *members);
void run_state_keep_sample(
        struct run_state *state, const struct message_event *event,
        const json_t *members);
/* The events and samples of earlier processes of the run, while the ring
 * has events alone: these come after them, and a `resumed` among them says
 * which of them hold. Takes ownership; may be NULL. */
void run_state_take_past(struct run_state *state, struct past *past);

#endif
