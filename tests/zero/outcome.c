/* outcome.c - the state of a run: taken from ZeRO, given to it, compared. */
#include "outcome.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void outcome_init(struct outcome *out, size_t total)
{
    *out = (struct outcome){.total = total};
    out->master = calloc(total, sizeof(float));
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        out->state[lane] = calloc(total, sizeof(float));
        out->scale[lane] = calloc(total, sizeof(float));
    }
    out->block_v = calloc(total, sizeof(float));
}

void outcome_fini(struct outcome *outcome)
{
    free(outcome->master);
    for (int lane = 0; lane < OPTIM_LANES; lane++) {
        free(outcome->state[lane]);
        free(outcome->scale[lane]);
    }
    free(outcome->block_v);
}

size_t tensor_start(const struct param_table *table, int id)
{
    size_t start = 0;
    for (int i = 0; i < id; i++)
        start += table->params[i].count;
    return start;
}

/* --- state in and out ----------------------------------------------------- */

/* Where a lane of a range lies in an outcome. */
struct lane_home {
    char *values;
    float *scales;
};

static struct lane_home home_of(
        const struct outcome *outcome, size_t tensor,
        const struct zero_range *range, int lane)
{
    enum optim_format format = range->layout.lane[lane];
    return (struct lane_home){
            outcome->state[lane] + 4 * tensor +
                    optim_lane_bytes(format, range->begin),
            outcome->scale[lane] + tensor +
                    optim_scale_count(format, range->begin)};
}

static bool has_elements(enum optim_format format)
{
    return format != OPTIM_NONE && format != OPTIM_BLOCKS;
}

static enum zd_status save_range(
        const struct outcome *out, const struct param_table *table,
        struct zero *zero, const struct zero_range *range)
{
    size_t tensor = tensor_start(table, range->id);
    float *values = calloc(range->count, sizeof *values);
    enum zd_status status = zero_range_move(
            zero, range, ZERO_WEIGHTS, 0, range->count, values, NULL, ZERO_OUT);
    dtype_convert(
            out->master + tensor + range->begin, DTYPE_FP32, values,
            range->weight_type, range->count);
    free(values);
    for (int lane = 0; status == ZD_OK && lane < OPTIM_LANES; lane++) {
        struct lane_home home = home_of(out, tensor, range, lane);
        if (has_elements(range->layout.lane[lane]))
            status = zero_range_move(
                    zero, range, lane, 0, range->count, home.values,
                    home.scales, ZERO_OUT);
    }
    if (status == ZD_OK && range->begin == 0 &&
        zero_block_count(zero, range->id))
        status = zero_blocks_move(
                zero, range->id, out->block_v + tensor, ZERO_OUT);
    return status;
}

enum zd_status outcome_save(
        const struct outcome *out, const struct param_table *table,
        struct zero *zero)
{
    for (int i = 0; i < zero_range_count(zero, ZERO_SAVES); i++) {
        struct zero_range range = zero_range_at(zero, ZERO_SAVES, i);
        ZD_TRY(save_range(out, table, zero, &range));
    }
    /* what does not train is held by each replica */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    enum zd_status status = ZD_OK;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < zero_range_count(zero, ZERO_HOLDS); i++) {
        struct zero_range range = zero_range_at(zero, ZERO_HOLDS, i);
        if (!range.trains && status == ZD_OK)
            status = save_range(out, table, zero, &range);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static enum zd_status restore_range(
        const struct outcome *from, const struct param_table *table,
        struct zero *zero, const struct zero_range *range)
{
    size_t tensor = tensor_start(table, range->id);
    float *values = calloc(range->count, sizeof *values);
    dtype_convert(
            values, range->weight_type, from->master + tensor + range->begin,
            DTYPE_FP32, range->count);
    enum zd_status status = zero_range_move(
            zero, range, ZERO_WEIGHTS, 0, range->count, values, NULL, ZERO_IN);
    free(values);
    for (int lane = 0; status == ZD_OK && lane < OPTIM_LANES; lane++) {
        struct lane_home home = home_of(from, tensor, range, lane);
        if (has_elements(range->layout.lane[lane]))
            status = zero_range_move(
                    zero, range, lane, 0, range->count, home.values,
                    home.scales, ZERO_IN);
    }
    return status;
}

static enum zd_status restore_blocks(
        const struct outcome *from, const struct param_table *table,
        struct zero *zero)
{
    for (int id = 0; id < table->count; id++)
        if (zero_block_count(zero, id))
            ZD_TRY(zero_blocks_move(
                    zero, id, from->block_v + tensor_start(table, id),
                    ZERO_IN));
    return ZD_OK;
}

enum zd_status outcome_restore(
        const struct outcome *from, const struct param_table *table,
        struct zero *zero)
{
    ZD_TRY(restore_blocks(from, table, zero));
    for (int i = 0; i < zero_range_count(zero, ZERO_HOLDS); i++) {
        struct zero_range range = zero_range_at(zero, ZERO_HOLDS, i);
        ZD_TRY(restore_range(from, table, zero, &range));
    }
    return zero_ranges_loaded(zero);
}

/* --- two of them ---------------------------------------------------------- */

bool outcome_sound(const struct outcome *outcome)
{
    if (outcome->status != ZD_OK)
        printf("# status %d: %s\n", outcome->status, outcome->what);
    else if (!outcome->ranks_agree)
        printf("# ranks differ\n");
    else if (!outcome->wire_matches)
        printf("# the wire is not the planned one\n");
    return outcome->status == ZD_OK && outcome->ranks_agree &&
           outcome->wire_matches;
}

bool outcome_same(const struct outcome *a, const struct outcome *b)
{
    size_t bytes = a->total * sizeof(float);
    bool same = a->total == b->total && !memcmp(a->master, b->master, bytes) &&
                !memcmp(a->block_v, b->block_v, bytes);
    for (int lane = 0; same && lane < OPTIM_LANES; lane++)
        same = !memcmp(a->state[lane], b->state[lane], bytes) &&
               !memcmp(a->scale[lane], b->scale[lane], bytes);
    return same;
}

bool outcome_same_run(const struct outcome *a, const struct outcome *b)
{
    return outcome_same(a, b) && a->seen == b->seen &&
           a->evaluated == b->evaluated &&
           !memcmp(a->norms, b->norms, sizeof a->norms) &&
           !memcmp(a->losses, b->losses, sizeof a->losses);
}
