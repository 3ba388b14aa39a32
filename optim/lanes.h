/* lanes.h - the layout of a run of elements' states: the same on the device and
 * spilled to the host (zero), and in memory and in a file (offload).
 *
 * A lane takes an array for its values and one for its scales, as its format
 * has them (optim.h). The states of a run lie together, as a record:
 *
 *     | m | its scales | v | its scales |
 *
 * Blocks of Adam-mini's v lie elsewhere. */
#pragma once

#include "base/copy.h"
#include "optim/optim.h"

/* Where the lanes of a run begin in its record, in bytes: lanes at multiples of
 * `align` (of 64, then), scales at multiples of 64. */
struct optim_record {
    size_t values[OPTIM_LANES], scales[OPTIM_LANES];
    size_t lane[OPTIM_LANES + 1]; /* where each begins; last: the record's end
                                   */
};
struct optim_record optim_record_of(
        const struct optim_layout *layout, size_t count, size_t align);

/* NULL where there are no values, or no scales. */
struct optim_lanes optim_lanes_in_record(
        const struct optim_layout *layout, const struct optim_record *record,
        char *data);
/* The lanes from element `begin` on, a multiple of 256. */
struct optim_lanes optim_lanes_from(
        const struct optim_layout *layout, const struct optim_lanes *lanes,
        size_t begin);

/* Of `count` elements, on the host. */
void optim_lanes_copy(
        const struct optim_layout *layout, const struct optim_lanes *to,
        const struct optim_lanes *from, size_t count, copy_fn *copy);
void optim_lanes_clear(
        const struct optim_layout *layout, const struct optim_lanes *lanes,
        size_t count);

/* `count` rounded up to whole qblocks: the room of a run whose arrays begin at
 * multiples of 64 bytes (except scales). */
static inline size_t optim_whole_qblocks(size_t count)
{
    return (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK * OPTIM_QBLOCK;
}
