/* past.h - the events of a run over all its processes, without undone ones.
 *
 * events.jsonl is never cut. Where a process went on from a checkpoint,
 * `resumed` says what it undid: the samples, evaluations, checkpoints and
 * commands of steps that were repeated. They are left out here, as their rows
 * are cut from metrics.jsonl. Events of a process (warnings, states, `resumed`)
 * stay, except after a fresh start in the same folder, which drops everything
 * before it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { EVENTS_KEPT = 4096 };

struct kept_event {
    int64_t id, step;
    char kind[16];
    char *text; /* owned: one line of JSON */
};

struct past {
    struct kept_event *events; /* (room), ids rise; at least the last
                                  EVENTS_KEPT, at most twice as many */
    int count;
    size_t room;
};

/* The last EVENTS_KEPT events of `path` (events.jsonl); invalid lines are
 * skipped, and a missing file is empty. */
struct past *past_read(const char *path);
void past_free(struct past *past); /* may be NULL */
void past_fini(struct past *past);
/* Adds the next event of the file, if its id is above the last one's, and drops
 * the events that it undid. Copies its text. */
void past_add(struct past *past, const struct kept_event *event);
/* The next event of this process. Returns the copy, borrowed until the next
 * call. */
const struct kept_event *past_append(
        struct past *past, const struct kept_event *event);
/* Index of the oldest event whose id is above `id`; count: none. */
int past_after(const struct past *past, int64_t id);
