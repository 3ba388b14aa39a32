/* events.h - output_dir/events.jsonl: the events of a run, one per line, with
 * consecutive ids (kinds: docs/control.md). Rank 0.
 *
 * Steps have ids too, but are in metrics.jsonl instead. The file is never
 * truncated: a resumed run writes `resumed`, which names the undone steps.
 * Internal to train. */
#pragma once

#include "train/report/observer.h"

#define EVENTS_FILE "events.jsonl" /* in output_dir */
struct events;

/* Continues ids after the last whole line of `path`. Until events_close the
 * log's warnings are also events. Until events_begin lines wait in memory and
 * the file is not touched, so that a refused start leaves no trace. */
enum zd_status events_open(
        const char *path, const struct train_observer *observer,
        struct events **out);
enum zd_status events_begin(struct events *events); /* may be NULL */
void events_close(struct events *events);
/* Any thread. Takes ownership of `members` (NULL: none). A failing disk is
 * tolerated as for metrics.jsonl. `events` may be NULL. */
void events_tell(
        struct events *events, const char *kind, int64_t step, json_t *members);
/* For another rank, while the process that has the events open is stopped:
 * appends after the file's last whole line, if the file exists. Takes ownership
 * of `members`. */
void events_append(
        const char *path, const char *kind, int64_t step, json_t *members);
/* The last id; 0: none yet. */
int64_t events_last_id(struct events *events);
/* Waits until the lines so far are on disk; any thread. */
enum zd_status events_sync(struct events *events);
