/* load.c - fills a rank's shard from a checkpoint of any number of ranks;
 * states may have another format. Streamed: no state is in memory twice. */
#include "base/must.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/pieces.h"

#include <stdlib.h>
#include <string.h>

/* Elements in memory at a time, as in saving; ROOM: and the rest of a qblock.
 */
enum { CHUNK = 1 << 20, ROOM = CHUNK + OPTIM_QBLOCK };

struct load {
    const struct checkpoint *checkpoint;
    const struct param_table *table;
    struct zero *zero;
    /* as read, as fp32, and as written */
    float values[ROOM], wide[ROOM], converted[ROOM];
    float scales[ROOM / OPTIM_QBLOCK], converted_scales[ROOM / OPTIM_QBLOCK];
};

/* Reports a read failure, as opposed to one of the device that is filled. */
static enum zd_status told(const struct load *load, enum zd_status status)
{
    return checkpoint_unreadable(load->checkpoint->path, status);
}

/* The checkpoint's range for elements of a range of this rank. */
static struct pieces_range pieces_of(
        const struct load *load, const struct zero_range *range, size_t done,
        size_t count)
{
    const struct param *param = &load->table->params[range->id];
    return (struct pieces_range){
            param->name, param, range->begin + done, count};
}

/* --- weights -------------------------------------------------------------- */

static enum zd_status load_weights(
        struct load *load, const struct zero_range *range, size_t done,
        size_t count)
{
    void *values = load->wide;
    struct pieces_range pieces = pieces_of(load, range, done, count);
    memset(load->wide, 0, count * sizeof *load->wide); /* padding */
    ZD_TRY(told(
            load, pieces_read_weights(load->checkpoint, &pieces, load->wide)));
    if (range->weight_type != DTYPE_FP32) {
        dtype_convert(
                load->converted, range->weight_type, load->wide, DTYPE_FP32,
                count);
        values = load->converted;
    }
    return zero_range_move(
            load->zero, range, ZERO_WEIGHTS, done, count, values, NULL,
            ZERO_IN);
}

/* --- states --------------------------------------------------------------- */

/* Decodes a run of a slice from 8 bits: qblocks are the tensor's, so one may
 * begin before the run. */
static enum zd_status decode_run(
        struct load *load, enum optim_lane lane, const char *name,
        const struct slice_run *run, float *out)
{
    size_t skip = run->whole % OPTIM_QBLOCK;
    struct pieces_range blocks = {
            .name = name,
            .begin = run->whole - skip,
            .count = skip + run->count};
    ZD_TRY(
            told(load, pieces_read_lane(
                               load->checkpoint, lane, &blocks, load->values,
                               load->scales)));
    optim_lane_read(
            lane, OPTIM_8BIT, load->values, load->scales, blocks.count,
            load->converted);
    memcpy(out, load->converted + skip, run->count * sizeof *out);
    return ZD_OK;
}

/* Reads a lane as fp32 from any saved format. */
static enum zd_status read_wide(
        struct load *load, enum optim_lane lane, enum optim_format from,
        const struct pieces_range *pieces)
{
    struct slice_run run = {.begin = pieces->begin};
    size_t count = pieces->count;
    memset(load->wide, 0, count * sizeof *load->wide); /* padding */
    if (from != OPTIM_8BIT) {
        optim_lane_clear(lane, from, load->values, NULL, count);
        ZD_TRY(
                told(load, pieces_read_lane(
                                   load->checkpoint, lane, pieces, load->values,
                                   NULL)));
        optim_lane_read(lane, from, load->values, NULL, count, load->wide);
        return ZD_OK;
    }
    while (param_slice_next(pieces->slice, pieces->begin + count, &run))
        if (!run.is_padding)
            ZD_TRY(decode_run(
                    load, lane, pieces->name, &run,
                    load->wide + (run.begin - pieces->begin)));
    return ZD_OK;
}

/* If formats agree, copies the lane without conversion, bit for bit. */
static enum zd_status load_lane(
        struct load *load, const struct zero_range *range, enum optim_lane lane,
        size_t done, size_t count)
{
    struct pieces_range pieces = pieces_of(load, range, done, count);
    enum optim_format from = pieces_format(load->checkpoint, lane, pieces.name);
    enum optim_format to = range->layout.lane[lane];
    if (to == OPTIM_NONE || to == OPTIM_BLOCKS || from == OPTIM_NONE ||
        from == OPTIM_BLOCKS)
        return ZD_OK; /* it was frozen when saved: its states are zero */
    if (from != to) {
        ZD_TRY(read_wide(load, lane, from, &pieces));
        optim_lane_write(
                lane, to, load->converted, load->converted_scales, count,
                load->wide);
        return zero_range_move(
                load->zero, range, lane, done, count, load->converted,
                load->converted_scales, ZERO_IN);
    }
    optim_lane_clear(lane, to, load->values, load->scales, count);
    ZD_TRY(
            told(load, pieces_read_lane(
                               load->checkpoint, lane, &pieces, load->values,
                               load->scales)));
    return zero_range_move(
            load->zero, range, lane, done, count, load->values, load->scales,
            ZERO_IN);
}

static enum zd_status load_range(
        struct load *load, const struct zero_range *range, bool moments)
{
    for (size_t done = 0; done < range->count; done += CHUNK) {
        size_t left = range->count - done;
        size_t count = left < CHUNK ? left : CHUNK;
        ZD_TRY(load_weights(load, range, done, count));
        for (int lane = 0; moments && lane < OPTIM_LANES; lane++)
            ZD_TRY(load_lane(load, range, (enum optim_lane)lane, done, count));
    }
    return ZD_OK;
}

static enum zd_status load_blocks_of(struct load *load, int id, size_t count)
{
    const char *name = load->table->params[id].name;
    if (!count ||
        pieces_format(load->checkpoint, OPTIM_V, name) != OPTIM_BLOCKS)
        return ZD_OK;
    ZD_FREED float *v = zd_must(malloc(count * sizeof *v));
    ZD_TRY(told(load, pieces_read_blocks(load->checkpoint, name, count, v)));
    return zero_blocks_move(load->zero, id, v, ZERO_IN);
}

static enum zd_status load_blocks(struct load *load)
{
    for (int id = 0; id < load->table->count; id++)
        ZD_TRY(load_blocks_of(load, id, zero_block_count(load->zero, id)));
    return ZD_OK;
}

/* Adam's t of tensors that the checkpoint has trained; 0 for others, whose
 * states begin now. */
static enum zd_status steps_of(
        const struct load *load, const char *name, int64_t applied_steps,
        int64_t *steps_out)
{
    const json_t *optimizer =
            json_object_get(load->checkpoint->manifest, "optimizer");
    const json_t *own = json_object_get(json_object_get(optimizer, "t"), name);
    *steps_out = pieces_trained(load->checkpoint, name) ? applied_steps : 0;
    if (!own || *steps_out == 0)
        return ZD_OK;
    *steps_out = json_integer_value(own);
    if (!json_is_integer(own) || *steps_out < 0 || *steps_out > applied_steps)
        return ZD_BAD(
                "E0802",
                "%s/" CHECKPOINT_MANIFEST " has a t of %s that is not from 0 "
                "to the %lld steps applied",
                load->checkpoint->path, name, (long long)applied_steps);
    return ZD_OK;
}

static enum zd_status load_steps(struct load *load)
{
    int64_t applied_steps = checkpoint_state(load->checkpoint).applied_steps;
    for (int id = 0; id < load->table->count; id++) {
        int64_t steps = applied_steps;
        const struct param *param = &load->table->params[id];
        if (param->trainable)
            ZD_TRY(steps_of(load, param->name, applied_steps, &steps));
        zero_set_began(load->zero, id, applied_steps - steps);
    }
    return ZD_OK;
}

/* --- all of it ------------------------------------------------------------ */

const char *checkpoint_optimizer(const struct checkpoint *checkpoint)
{
    const json_t *optimizer =
            json_object_get(checkpoint->manifest, "optimizer");
    const char *name = json_string_at(optimizer, "name");
    return name ? name : "";
}

static enum checkpoint_moments moments_of(
        const struct checkpoint *checkpoint, const struct optim_options *optim)
{
    const json_t *manifest = checkpoint->manifest;
    if (!json_is_true(json_object_get(manifest, "moments")))
        return MOMENTS_NOT_SAVED;
    return strcmp(checkpoint_optimizer(checkpoint),
                  train_optimizer_name(optim->name)) == 0
                   ? MOMENTS_LOADED
                   : MOMENTS_OTHERS;
}

enum zd_status checkpoint_load(
        const struct checkpoint *checkpoint, const struct zero_plan *plan,
        struct zero *zero, enum checkpoint_moments *moments_out)
{
    ZD_FREED struct load *load = zd_must(malloc(sizeof *load));
    enum checkpoint_moments moments =
            moments_of(checkpoint, &plan->request.optim);
    load->checkpoint = checkpoint;
    load->table = plan->request.table;
    load->zero = zero;
    *moments_out = moments;
    ZD_TRY(zero_states_clear(zero));
    for (int i = 0; i < zero_range_count(zero, ZERO_HOLDS); i++) {
        struct zero_range range = zero_range_at(zero, ZERO_HOLDS, i);
        if (!pieces_trained(checkpoint, load->table->params[range.id].name))
            continue; /* zero_load has read it */
        ZD_TRY(load_range(load, &range, moments == MOMENTS_LOADED));
    }
    if (moments != MOMENTS_LOADED)
        return ZD_OK;
    ZD_TRY(load_blocks(load));
    return load_steps(load);
}
