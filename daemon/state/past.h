/* past.h - the events of a run over all its processes: those that hold.
 *
 * events.jsonl is never cut. Where a process went on from a checkpoint,
 * `resumed` says what it undid: the samples, evaluations, checkpoints and
 * commands of steps that were repeated. They are left out here, as their rows
 * are cut from metrics.jsonl. What happened to a process (warnings, states,
 * `resumed`) stays; after a fresh start in the same folder nothing of what was
 * before does. */
#ifndef ZD_DAEMON_STATE_PAST_H
#define ZD_DAEMON_STATE_PAST_H

#include <stdint.h>

enum { EVENTS_KEPT = 4096 };

struct kept_event {
    int64_t id, step;
    char kind[16];
    char *text; /* owned: one line of JSON */
};

struct past {
    struct kept_event *events; /* (room), ids rise */
    int count, room;
};

/* The last EVENTS_KEPT of `path` (events.jsonl); a line that is none is left
 * out, and a file that is not there has none. */
struct past *past_read(const char *path);
void past_free(struct past *past); /* may be NULL */
/* The next event, when its id is above the last one's. Copies its text. */
void past_add(struct past *past, const struct kept_event *event);

#endif
