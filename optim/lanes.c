#include "optim/lanes.h"

#include "base/memory/arena.h"
#include "base/number/sizes.h"

static size_t scale_bytes(enum optim_format format, size_t count)
{
    return optim_scale_count(format, count) * sizeof(float);
}

/* The array of a lane's values; OPTIM_ARRAYS: none. */
static enum optim_array array_of(int lane, enum optim_format format)
{
    switch (format) {
    case OPTIM_FP32:
        return lane == OPTIM_M ? OPTIM_ARRAY_M : OPTIM_ARRAY_V;
    case OPTIM_BF16:
        return OPTIM_ARRAY_BF16;
    case OPTIM_8BIT:
        return OPTIM_ARRAY_8BIT;
    case OPTIM_NONE:
    case OPTIM_BLOCKS:
        break;
    }
    return OPTIM_ARRAYS;
}

/* --- places --------------------------------------------------------------- */

/* Takes an array and returns its start. */
static size_t take(size_t *end, size_t bytes, size_t align)
{
    size_t begin = *end;
    *end += size_round_up(bytes, align);
    return begin;
}

struct optim_place optim_place_in_arrays(
        const struct optim_layout *layout, size_t count, size_t align,
        size_t *const ends[OPTIM_ARRAYS])
{
    struct optim_place place = {{0}};
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        enum optim_array array = array_of(lane, format);
        if (array == OPTIM_ARRAYS)
            continue;
        place.values[lane] =
                take(ends[array], optim_lane_bytes(format, count), align);
        place.scales[lane] = take(
                ends[OPTIM_ARRAY_SCALES], scale_bytes(format, count), align);
    }
    return place;
}

struct optim_record optim_record_of(
        const struct optim_layout *layout, size_t count, size_t align)
{
    struct optim_record record = {.lane = {0}};
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        size_t end = record.lane[lane];
        record.place.values[lane] =
                take(&end, optim_lane_bytes(format, count), ARENA_ALIGN);
        record.place.scales[lane] =
                take(&end, scale_bytes(format, count), ARENA_ALIGN);
        record.lane[lane + 1] = size_round_up(end, align);
    }
    return record;
}

/* --- lanes ---------------------------------------------------------------- */

struct optim_lanes optim_lanes_at(
        const struct optim_layout *layout, const struct optim_place *place,
        char *const arrays[OPTIM_ARRAYS], size_t begin)
{
    struct optim_lanes lanes = {{NULL}};
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        enum optim_array array = array_of(lane, format);
        if (array == OPTIM_ARRAYS || !arrays[array])
            continue;
        lanes.state[lane] = arrays[array] + place->values[lane] +
                            optim_lane_bytes(format, begin);
        if (array == OPTIM_ARRAY_8BIT)
            lanes.scale[lane] =
                    (float *)(arrays[OPTIM_ARRAY_SCALES] + place->scales[lane] + scale_bytes(format, begin));
    }
    return lanes;
}

struct optim_lanes optim_lanes_in_record(
        const struct optim_layout *layout, const struct optim_record *record,
        char *data)
{
    char *const arrays[OPTIM_ARRAYS] = {data, data, data, data, data};
    return optim_lanes_at(layout, &record->place, arrays, 0);
}

struct optim_lanes optim_lanes_from(
        const struct optim_layout *layout, const struct optim_lanes *lanes,
        size_t begin)
{
    struct optim_lanes from = *lanes;
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        if (from.state[lane])
            from.state[lane] =
                    (char *)from.state[lane] + optim_lane_bytes(format, begin);
        if (from.scale[lane])
            from.scale[lane] += optim_scale_count(format, begin);
    }
    return from;
}

void optim_lanes_copy(
        const struct optim_layout *layout, const struct optim_lanes *to,
        const struct optim_lanes *from, size_t count, copy_fn *copy)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        if (to->state[lane])
            copy(to->state[lane], from->state[lane],
                 optim_lane_bytes(format, count));
        if (to->scale[lane])
            copy(to->scale[lane], from->scale[lane],
                 scale_bytes(format, count));
    }
}

void optim_lanes_clear(
        const struct optim_layout *layout, const struct optim_lanes *lanes,
        size_t count)
{
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        if (lanes->state[lane])
            optim_lane_clear(
                    (enum optim_lane)lane, layout->lane[lane],
                    lanes->state[lane], lanes->scale[lane], count);
}
