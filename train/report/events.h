/* events.h - output_dir/events.jsonl: what happened in a run, a line each, with
 * ids that rise by one (docs/control.md has the kinds). Rank 0.
 *
 * Steps have ids too, but are no lines: metrics.jsonl has them. The file is
 * never cut: a resumed run writes `resumed`, which says what it undid. Internal
 * to train. */
#pragma once

#include "train/report/observer.h"

#define EVENTS_FILE "events.jsonl" /* in output_dir */
struct events;

/* Go on after the last whole line of `path`, whose `id` is the last one.
 * Warnings of the log are events from here on until events_close. The file is
 * not touched, and lines wait in memory, until events_begin: a start that is
 * refused leaves no trace. */
enum zd_status events_open(
        const char *path, const struct train_observer *observer,
        struct events **out);
enum zd_status events_begin(struct events *events); /* may be NULL */
void events_close(struct events *events);
/* Any thread. Takes ownership of `members` (NULL: none). A disk that takes
 * nothing is survived as in metrics.jsonl. `events` may be NULL. */
void events_tell(
        struct events *events, const char *kind, int64_t step, json_t *members);
/* By another rank, while the rank that has the events open does not run: after
 * the whole lines of the file, if it is there. Takes ownership of `members`. */
void events_append(
        const char *path, const char *kind, int64_t step, json_t *members);
/* The last id given; 0: none yet. */
int64_t events_last_id(struct events *events);
/* Lines so far are on disk; any thread, which waits for it. */
enum zd_status events_sync(struct events *events);
