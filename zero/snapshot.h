/* snapshot.h - what a rank saves: live, or a copy of one moment.
 *
 *   trainer, between steps                writer, any thread
 *   zero_snapshot_take(snapshot)    ->    zero_snapshot_view(snapshot), read
 *   the next steps change zero            .. everything once
 *   zero_snapshot_take again        <-    zero_snapshot_leave
 *
 * From take to leave the snapshot belongs to the writer and does not change;
 * its owner ensures that (train/trainer/save.h).
 *
 * Device memory and paged states are copied at once. The offload engine's
 * masters and states are copied on write: an update that reaches them before
 * the writer has read them copies them, or waits for the writer if there is no
 * memory left (offload/states.c). So a writer that gives up must call leave at
 * once, too.
 *
 * A view of zero itself (between steps) and a view of a copy are read alike, so
 * that code that writes a checkpoint need not know which it has. */
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
    bool backwards; /* the next update begins with the last range */
};
struct zero_view zero_view_live(const struct zero *zero);

/* Upper bounds over ranks, in bytes; with `moments` m and v too. Pure. */
struct zero_snapshot_needs {
    size_t copied;   /* copied at once; required */
    size_t on_write; /* to copy all that updates may reach before the writer;
                        less is enough */
};
void zero_snapshot_measure(
        const struct zero_plan *plan, bool moments,
        struct zero_snapshot_needs *needs_out);

struct zero_snapshot;
/* `memory`: host memory of at least `copied` bytes, borrowed. */
struct zero_snapshot *zero_snapshot_create(
        const struct zero *zero, bool moments, void *memory, size_t bytes);
void zero_snapshot_destroy(struct zero_snapshot *snapshot);
/* Number of copying threads in addition to those that compute; default 0. */
void zero_snapshot_help(struct zero_snapshot *snapshot, int helpers);
/* Faults in the pages for the copy: now, or (`beside`) in the background by a
 * thread of low priority, until the next take or the end. At most once. */
void zero_snapshot_warm(struct zero_snapshot *snapshot, bool beside);
/* Between steps, after zero_settle. Not collective. */
enum zd_status zero_snapshot_take(struct zero_snapshot *snapshot);
struct zero_view zero_snapshot_view(const struct zero_snapshot *snapshot);
/* Called by the writer: it reads nothing more. */
void zero_snapshot_leave(struct zero_snapshot *snapshot);
/* Seconds that updates have waited for the writer since the take. */
double zero_snapshot_waited(const struct zero_snapshot *snapshot);
