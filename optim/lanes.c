#include "optim/lanes.h"

#include "base/memory/arena.h"
#include "base/number/sizes.h"

static size_t scale_bytes(enum optim_format format, size_t count)
{
    return optim_scale_count(format, count) * sizeof(float);
}

/* Takes an array and returns its start. */
static size_t take(size_t *end, size_t bytes)
{
    size_t begin = *end;
    *end += size_round_up(bytes, ARENA_ALIGN);
    return begin;
}

struct optim_record optim_record_of(
        const struct optim_layout *layout, size_t count, size_t align)
{
    struct optim_record record = {.lane = {0}};
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        size_t end = record.lane[lane];
        record.values[lane] = take(&end, optim_lane_bytes(format, count));
        record.scales[lane] = take(&end, scale_bytes(format, count));
        record.lane[lane + 1] = size_round_up(end, align);
    }
    return record;
}

struct optim_lanes optim_lanes_in_record(
        const struct optim_layout *layout, const struct optim_record *record,
        char *data)
{
    struct optim_lanes lanes = {{NULL}};
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        enum optim_format format = layout->lane[lane];
        if (optim_lane_bytes(format, 1))
            lanes.state[lane] = data + record->values[lane];
        if (format == OPTIM_8BIT)
            lanes.scale[lane] = (float *)(data + record->scales[lane]);
    }
    return lanes;
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
