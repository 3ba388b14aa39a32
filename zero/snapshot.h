/* snapshot.h - what a rank saves, as it is or as it was at one moment.
 *
 *   trainer, between steps                writer, any thread
 *   zero_snapshot_take(snapshot)    ->    zero_snapshot_view(snapshot), read
 *   the next steps change zero            .. everything once
 *   zero_snapshot_take again        <-    zero_snapshot_leave
 *
 * Between the first line and the last the snapshot is the writer's and does not
 * change; its owner sees to that (train/trainer/save.h).
 *
 * What lies on the device, and paged states, are copied at once. Masters and
 * states of the offload engine are not: an update that comes to them before the
 * writer has copies them, or waits for the writer where there is no memory for
 * it (offload/states.c). So a writer that gives up leaves too, at once.
 *
 * A view is read alike whether it shows zero itself, between steps, or a copy:
 * who writes a checkpoint does not ask. */
#pragma once

#include "zero/zero.h"

/* ranges of ZERO_SAVES by number; otherwise as zero_range_move and
 * zero_blocks_move. */
struct zero_view {
    const void *ctx;
    enum zd_status (*read)(
            const void *ctx, int range, int lane, size_t begin, size_t count,
            void *values, float *scales);
    enum zd_status (*blocks)(const void *ctx, int range, float *values);
    bool backwards; /* the next update comes to the last range first */
};
struct zero_view zero_view_live(const struct zero *zero);

/* Upper bounds over ranks, in bytes; with `moments` m and v too. Pure. */
struct zero_snapshot_needs {
    size_t copied;   /* at once: no snapshot without it */
    size_t on_write; /* for a copy of all that updates may come to first; less
                      will do */
};
void zero_snapshot_measure(
        const struct zero_plan *plan, bool moments,
        struct zero_snapshot_needs *needs_out);

struct zero_snapshot;
/* `memory`, of the host, with at least the bytes that are copied, is borrowed.
 */
struct zero_snapshot *zero_snapshot_create(
        const struct zero *zero, bool moments, void *memory, size_t bytes);
void zero_snapshot_destroy(struct zero_snapshot *snapshot);
/* Number of copying threads in addition to those that compute; default 0. */
void zero_snapshot_help(struct zero_snapshot *snapshot, int helpers);
/* Pages for what is copied: now, or `beside` other work, by a thread of low
 * priority, until the next take or the end. At most once. */
void zero_snapshot_warm(struct zero_snapshot *snapshot, bool beside);
/* Between steps, after zero_settle. Not collective. */
enum zd_status zero_snapshot_take(struct zero_snapshot *snapshot);
struct zero_view zero_snapshot_view(const struct zero_snapshot *snapshot);
/* By the writer: nothing is read any more. */
void zero_snapshot_leave(struct zero_snapshot *snapshot);
/* Seconds that updates have waited for the writer since it was taken. */
double zero_snapshot_waited(const struct zero_snapshot *snapshot);
