/* snapshot.h - what a rank saves, as it is or as it was at one moment.
 *
 *   trainer, between steps                writer, any thread
 *   zero_snapshot_take(snapshot)    ->    zero_snapshot_view(snapshot), read
 *   the next steps change zero            .. as often as it likes
 *   zero_snapshot_take again        <-    the writer has ended
 *
 * Between the first line and the last the snapshot is the writer's and does not
 * change; its owner sees to that (train/checkpoint/background.h).
 *
 * A view is read alike whether it shows zero itself, between steps, or a copy:
 * who writes a checkpoint does not ask. */
#ifndef ZD_ZERO_SNAPSHOT_H
#define ZD_ZERO_SNAPSHOT_H

#include "zero/zero.h"

/* ranges of ZERO_SAVES by number; otherwise as zero_range_read and
 * zero_blocks_read. */
struct zero_view {
    const void *ctx;
    enum zd_status (*read)(
            const void *ctx, int range, int lane, size_t begin, size_t count,
            void *values, float *scales);
    enum zd_status (*blocks)(const void *ctx, int range, float *values);
};
struct zero_view zero_view_live(const struct zero *zero);

/* Bytes that no rank's copy exceeds; `moments`: of m and v too. Pure. */
size_t zero_snapshot_bytes(const struct zero_plan *plan, bool moments);

struct zero_snapshot;
/* `memory`, of the host, with that many bytes, is borrowed. */
enum zd_status zero_snapshot_create(
        const struct zero *zero, bool moments, void *memory,
        struct zero_snapshot **out);
void zero_snapshot_destroy(struct zero_snapshot *snapshot);
/* Between steps, behind zero_settle. Not collective. */
enum zd_status zero_snapshot_take(struct zero_snapshot *snapshot);
struct zero_view zero_snapshot_view(const struct zero_snapshot *snapshot);
/* Bytes that a copy of this rank has. */
size_t zero_snapshot_size(const struct zero_snapshot *snapshot);

#endif
