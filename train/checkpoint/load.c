/* load.c - fill what a rank holds from a checkpoint that any world
 * wrote, whose states may have another format. Streamed: a state is never in
 * memory twice. */
#include "base/log.h"
#include "base/must.h"
#include "base/text_buffer.h"
#include "train/checkpoint/arrays.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/pieces.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 }; /* elements in memory at a time, as when saving */

struct load {
    const struct checkpoint *checkpoint;
    const struct param_table *table;
    struct zero *zero;
    /* (CHUNK) as read, as fp32, and as written */
    void *values, *converted;
    float *scales, *wide, *converted_scales;
};

static void load_init(struct load *load)
{
    size_t bytes = CHUNK * sizeof(float);
    size_t scale_bytes = CHUNK / OPTIM_QBLOCK * sizeof(float);
    load->values = zd_must(malloc(bytes));
    load->wide = zd_must(malloc(bytes));
    load->converted = zd_must(malloc(bytes));
    load->scales = zd_must(malloc(scale_bytes));
    load->converted_scales = zd_must(malloc(scale_bytes));
}

static void load_fini(struct load *load)
{
    free(load->values);
    free(load->wide);
    free(load->converted);
    free(load->scales);
    free(load->converted_scales);
}

/* Reading failed, and not the device that is filled. */
static enum zd_status told(const struct load *load, enum zd_status status)
{
    return checkpoint_unreadable(checkpoint_path(load->checkpoint), status);
}

/* --- weights -------------------------------------------------------------- */

static enum zd_status load_weights(
        struct load *load, const struct zero_range *range, size_t done,
        size_t count)
{
    const char *name = load->table->params[range->id].name;
    const void *values = load->wide;
    ZD_TRY(
            told(load, pieces_read_weights(
                               load->checkpoint, name, range->begin + done,
                               count, load->wide)));
    if (range->weight_type != DTYPE_FP32) {
        dtype_convert(
                load->converted, range->weight_type, load->wide, DTYPE_FP32,
                count);
        values = load->converted;
    }
    return zero_range_write(
            load->zero, range, ZERO_WEIGHTS, done, count, values, NULL);
}

/* --- states --------------------------------------------------------------- */

/* As saved when the formats agree: then every bit is kept. */
static enum zd_status load_lane(
        struct load *load, const struct zero_range *range, enum optim_lane lane,
        size_t done, size_t count)
{
    const char *name = load->table->params[range->id].name;
    enum optim_format from = pieces_format(load->checkpoint, lane, name);
    enum optim_format to = range->layout.lane[lane];
    if (to == OPTIM_NONE || to == OPTIM_BLOCKS || from == OPTIM_NONE ||
        from == OPTIM_BLOCKS)
        return ZD_OK; /* it was frozen then: its states are clear */
    ZD_TRY(told(
            load, pieces_read_lane(
                          load->checkpoint, lane, name, range->begin + done,
                          count, load->values, load->scales)));
    if (from == to)
        return zero_range_write(
                load->zero, range, lane, done, count, load->values,
                load->scales);
    optim_lane_read(lane, from, load->values, load->scales, count, load->wide);
    optim_lane_write(
            lane, to, load->converted, load->converted_scales, count,
            load->wide);
    return zero_range_write(
            load->zero, range, lane, done, count, load->converted,
            load->converted_scales);
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
    float *v = zd_must(malloc(count * sizeof *v));
    enum zd_status status =
            told(load, pieces_read_blocks(load->checkpoint, name, count, v));
    if (status == ZD_OK)
        status = zero_blocks_write(load->zero, id, v);
    free(v);
    return status;
}

static enum zd_status load_blocks(struct load *load)
{
    for (int id = 0; id < load->table->count; id++)
        ZD_TRY(load_blocks_of(load, id, zero_block_count(load->zero, id)));
    return ZD_OK;
}

/* Adam's t of what the checkpoint has trained; 0 for the rest, whose states
 * begin now. */
static enum zd_status steps_of(
        const struct load *load, const char *name, int64_t applied_steps,
        int64_t *steps_out)
{
    const json_t *optimizer =
            json_object_get(checkpoint_manifest(load->checkpoint), "optimizer");
    const json_t *own = json_object_get(json_object_get(optimizer, "t"), name);
    *steps_out = pieces_trained(load->checkpoint, name) ? applied_steps : 0;
    if (!own || *steps_out == 0)
        return ZD_OK;
    *steps_out = json_integer_value(own);
    if (!json_is_integer(own) || *steps_out < 0 || *steps_out > applied_steps)
        return ZD_FAIL(
                ZD_ERR_DATA, "E0802",
                "%s/" CHECKPOINT_MANIFEST " has a t of %s that is not from 0 "
                "to the %lld steps applied",
                checkpoint_path(load->checkpoint), name,
                (long long)applied_steps);
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

/* --- what is told --------------------------------------------------------- */

/* One line for all tensors whose states change their format. */
static void say_converted(const struct load *load, const struct zero_plan *plan)
{
    enum { FORMATS = OPTIM_BLOCKS + 1 };
    int counts[OPTIM_LANES][FORMATS][FORMATS] = {0};
    char text[600] = "";
    struct text_buffer line = {.out = text, .bytes = sizeof text};
    for (int id = 0; id < load->table->count; id++) {
        const struct param *param = &load->table->params[id];
        struct optim_layout layout = zero_layout_of(plan, id);
        for (int lane = 0; param->trainable && lane < OPTIM_LANES; lane++)
            counts[lane][pieces_format(
                    load->checkpoint, (enum optim_lane)lane, param->name)]
                  [layout.lane[lane]]++;
    }
    for (int lane = 0; lane < OPTIM_LANES; lane++)
        for (int from = 0; from < FORMATS; from++)
            for (int to = 0; to < FORMATS; to++)
                if (from != to && counts[lane][from][to])
                    text_buffer_add(
                            &line, "%s%s of %d tensors %s -> %s",
                            line.used ? ", " : "", lane == OPTIM_M ? "m" : "v",
                            counts[lane][from][to],
                            format_name((enum optim_format)from),
                            format_name((enum optim_format)to));
    if (line.used)
        zd_log_info("optimizer states change their format: %s", text);
}

/* --- all of it ------------------------------------------------------------ */

const char *checkpoint_optimizer(const struct checkpoint *checkpoint)
{
    const json_t *optimizer =
            json_object_get(checkpoint_manifest(checkpoint), "optimizer");
    const char *name = json_string_at(optimizer, "name");
    return name ? name : "";
}

static enum checkpoint_moments moments_of(
        const struct checkpoint *checkpoint, const struct optim_options *optim)
{
    const json_t *manifest = checkpoint_manifest(checkpoint);
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
    struct load load = {
            .checkpoint = checkpoint,
            .table = plan->request.table,
            .zero = zero};
    enum checkpoint_moments moments =
            moments_of(checkpoint, &plan->request.optim);
    load_init(&load);
    enum zd_status status = zero_states_clear(zero);
    for (int i = 0; status == ZD_OK && i < zero_range_count(zero, ZERO_HOLDS);
         i++) {
        struct zero_range range = zero_range_at(zero, ZERO_HOLDS, i);
        if (!pieces_trained(checkpoint, load.table->params[range.id].name))
            continue; /* zero_load read it */
        status = load_range(&load, &range, moments == MOMENTS_LOADED);
    }
    if (status == ZD_OK && moments == MOMENTS_LOADED) {
        status = load_blocks(&load);
        if (status == ZD_OK)
            status = load_steps(&load);
        say_converted(&load, plan);
    }
    load_fini(&load);
    *moments_out = moments;
    return status;
}
