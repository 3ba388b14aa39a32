/* lanes.h - where the lanes of a run of elements lie: the one description of
 * what zero keeps on the device and spills to the host, and offload keeps in
 * memory and in a file.
 *
 * A lane takes an array for its values and one for its scales, as its format
 * has them (optim.h). Runs take theirs from arrays of many, by format:
 *
 *     OPTIM_ARRAY_M       | run 0: m | run 1: m | ..        fp32
 *     OPTIM_ARRAY_8BIT    | run 2: m | run 2: v | run 3: m | ..
 *     OPTIM_ARRAY_SCALES  | run 2: m | run 2: v | run 3: m | ..
 *
 * or each has all of its own in one piece, a record:
 *
 *     | m | its scales | v | its scales |
 *
 * A place is said in bytes, so that what is only planned has one too; lanes are
 * the pointers that come of it. Blocks of Adam-mini's v lie elsewhere. */
#pragma once

#include "base/copy.h"
#include "optim/optim.h"

enum optim_array {
    OPTIM_ARRAY_M,      /* fp32 m */
    OPTIM_ARRAY_V,      /* fp32 v */
    OPTIM_ARRAY_8BIT,   /* codes of m and v */
    OPTIM_ARRAY_SCALES, /* of codes */
    OPTIM_ARRAY_BF16,   /* m and v */
    OPTIM_ARRAYS
};

/* Where the lanes of a run begin in their arrays, or in its record. */
struct optim_place {
    size_t values[OPTIM_LANES], scales[OPTIM_LANES];
};

/* The place of `count` elements behind what the arrays hold so far: `ends` are
 * their bytes, which grow. Arrays that share memory share an end. What is taken
 * is rounded up to a multiple of `align`. */
struct optim_place optim_place_in_arrays(
        const struct optim_layout *layout, size_t count, size_t align,
        size_t *const ends[OPTIM_ARRAYS]);

/* Lanes begin at multiples of `align` (of 64, then), scales at multiples of 64.
 */
struct optim_record {
    struct optim_place place;
    size_t lane[OPTIM_LANES + 1]; /* where each begins; last: the record's end
                                   */
};
struct optim_record optim_record_of(
        const struct optim_layout *layout, size_t count, size_t align);

/* The lanes from element `begin` of a run on, a multiple of 256; NULL where
 * there are no values, or no scales. */
struct optim_lanes optim_lanes_at(
        const struct optim_layout *layout, const struct optim_place *place,
        char *const arrays[OPTIM_ARRAYS], size_t begin);
struct optim_lanes optim_lanes_in_record(
        const struct optim_layout *layout, const struct optim_record *record,
        char *data);
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

/* Elements up to whole qblocks: so many have room where a run's arrays are to
 * begin at multiples of 64 bytes (scales excepted). */
static inline size_t optim_whole_qblocks(size_t count)
{
    return (count + OPTIM_QBLOCK - 1) / OPTIM_QBLOCK * OPTIM_QBLOCK;
}
