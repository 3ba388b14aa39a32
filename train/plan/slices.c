/* slices.c - checks slices of tensor parallelism (model/slice.h) beyond the
 * model's sizes: blocks, random words and scales must not be split. Also
 * chooses what ranks that share a sample exchange for attention
 * (parallel.cp_comm_type): keys and values, or heads. */
#include "base/text_buffer.h"
#include "kernels/elementwise/masked.h"
#include "model/adapters/lora.h"
#include "model/fp8.h"
#include "model/quantized/cut.h"
#include "model/slice.h"
#include "train/plan/fit.h"

enum refusal { FITS, CUTS_BLOCKS, CUTS_WORDS, CUTS_CODES, CUTS_TILES };
enum { SIZES_MAX = 120 };

/* Rows or columns per place in a range. */
static int64_t share_of(const struct param *param, int range)
{
    const struct param_slice *slice = &param->slice;
    int64_t end = range + 1 < slice->range_count
                          ? slice->ranges[range + 1].here
                          : param->shape[slice->by_column];
    return end - slice->ranges[range].here;
}

/* Are blocks of the slice whole blocks of the tensor, on each place? */
static bool cuts_blocks(const struct param *param, int place)
{
    const struct param_slice *slice = &param->slice;
    int64_t line = slice->by_column ? 1 : param->shape[1];
    bool cuts = slice->by_column && slice->shape[1] % OPTIM_QBLOCK;
    for (int r = 0; r < slice->range_count; r++) {
        int64_t share = share_of(param, r), from = slice->ranges[r].whole;
        if (!slice->ranges[r].is_shared)
            from -= place * share;
        cuts |= share * line % OPTIM_QBLOCK || from * line % OPTIM_QBLOCK;
    }
    return cuts;
}

/* Are elements that share a call of random numbers on two places? */
static bool cuts_words(const struct train_job *job, const struct param *param)
{
    bool drops = job->lora.lora_dropout > 0 || job->lora.path;
    return drops && param->part == PARAM_LORA_A && param->slice.by_column &&
           param->shape[1] % DROPOUT_WORDS;
}

/* Would a tile with one scale be split over places? A weight with a side that
 * is not a multiple of FP8_ALIGN is not in FP8. */
static bool cuts_tiles(const struct train_job *job, const struct param *param)
{
    const struct param_slice *slice = &param->slice;
    bool cuts = false;
    if (job->train.fp8 != FP8_BLOCKWISE || !param_is_linear(param) ||
        fp8_group_of(param->role) == FP8_GROUPS)
        return false;
    for (int r = 0; r < slice->range_count; r++)
        cuts |= !slice->ranges[r].is_shared &&
                slice->ranges[r].count % FP8_BLOCK;
    return cuts && slice->shape[0] % FP8_ALIGN == 0 &&
           slice->shape[1] % FP8_ALIGN == 0;
}

static bool is_8bit(
        const struct optim_options *optim, const struct param *param)
{
    struct optim_layout layout = optim_layout_of(
            optim, param_whole_count(param), param->is_embedding,
            param_whole_blocks(param));
    return layout.lane[OPTIM_M] == OPTIM_8BIT ||
           layout.lane[OPTIM_V] == OPTIM_8BIT;
}

static bool heads_fit(const struct model_config *slice, int cp)
{
    return slice->heads % cp == 0 && kv_heads_used(slice) % cp == 0;
}

static enum refusal refusal_of(
        const struct train_job *job, const struct param_table *table, int id,
        int place)
{
    const struct param *param = &table->params[id];
    if (param_is_quantized(table, id) &&
        !codes_can_cut(param, param_whole_codes(table, id)))
        return CUTS_CODES;
    if (cuts_tiles(job, param))
        return CUTS_TILES;
    if (!param->trainable)
        return FITS;
    if (is_8bit(&job->optim, param) && cuts_blocks(param, place))
        return CUTS_BLOCKS;
    return cuts_words(job, param) ? CUTS_WORDS : FITS;
}

/* Checks that the slice splits nothing that must stay together; the error names
 * the first such tensor. */
static enum refusal check(
        const struct train_job *job, const struct param_table *table,
        struct tp tp)
{
    enum refusal refusal = FITS;
    char what[300];
    int id = 0;
    for (; id < table->count && refusal == FITS; id++)
        refusal = refusal_of(job, table, id, tp.place);
    const struct param *param = &table->params[id - 1];
    switch (refusal) {
    case FITS:
        return FITS;
    case CUTS_WORDS:
        ZD_PRINT(
                what,
                "the inputs of `%s` into shares of %lld, and dropout needs a "
                "multiple of %d",
                param->name, (long long)param->shape[1], DROPOUT_WORDS);
        break;
    case CUTS_CODES:
        ZD_PRINT(
                what, "`%s` within blocks whose %s codes share a scale",
                param->name, param_codes_name(table));
        break;
    case CUTS_TILES:
        ZD_PRINT(
                what,
                "`%s` within tiles of %d x %d, which share a scale with "
                "train.fp8 = \"blockwise\"",
                param->name, FP8_BLOCK, FP8_BLOCK);
        break;
    case CUTS_BLOCKS:
        ZD_PRINT(
                what,
                "`%s` within blocks of %d elements, whose 8-bit states share a "
                "scale",
                param->name, OPTIM_QBLOCK);
    }
    ZD_FAIL(ZD_ERR_CONFIG, "E0224", "parallel.tp_size = %d cuts %s", tp.size,
            what);
    return refusal;
}

/* Does tp of `size` fit the job? The plan has whole tables; reports no error.
 */
static bool fits(const struct train_job *job, struct job_plan *plan, int size)
{
    const struct tp tp = {size, 0};
    bool fits = plan_slice(job, tp, plan) == ZD_OK &&
                check(job, plan_slice_table(plan), tp) == FITS;
    zd_error_clear();
    return fits;
}

enum zd_status plan_check_slices(
        const struct train_job *job, const struct job_plan *plan)
{
    bool fits = plan->mesh.tp == 1 ||
                check(job, &plan->slice_table, plan->slice_config.tp) == FITS;
    return fits ? ZD_OK : ZD_ERR_CONFIG;
}

/* "8 or 4 or 2": sizes of an axis up to `most` that fit the model, the samples
 * and the ranks. */
static void list_sizes(
        const struct train_job *job, int most, bool is_cp, int world,
        struct job_plan *plan, char out[SIZES_MAX])
{
    struct mesh_sizes sizes = job->parallel;
    struct text_buffer text = {.out = out, .bytes = SIZES_MAX};
    int *size = is_cp ? &sizes.cp : &sizes.tp;
    out[0] = '\0';
    for (*size = most; *size > 1; --*size)
        if (job->data.cutoff_len % mesh_token_unit(sizes) == 0 &&
            world % ((int64_t)sizes.cp * sizes.tp) == 0 &&
            (is_cp ? heads_fit(&plan->slice_config, *size)
                   : fits(job, plan, *size)))
            text_buffer_add(&text, "%s%d", text.used ? " or " : "", *size);
}

static enum zd_status refuse(
        const struct train_job *job, struct job_plan *plan, int world)
{
    const struct tp tp = {job->parallel.tp, 0};
    struct optim_options wide = job->optim;
    char sizes[SIZES_MAX], states[100] = "", name[PLAN_NAME_MAX];
    wide.state_type = OPTIM_STATE_FP32;
    plan_optimizer_name(&wide, name);
    list_sizes(job, plan->config.heads, false, world, plan, sizes);
    enum refusal refusal = plan_slice(job, tp, plan) == ZD_OK
                                   ? check(job, &plan->slice_table, tp)
                                   : FITS;
    if (refusal == CUTS_TILES)
        ZD_PRINT(states, "train.fp8 = \"tensorwise\", or ");
    else if (refusal == CUTS_BLOCKS)
        ZD_PRINT(states, "optim.name = \"%s\", or ", name);
    return zd_fail_help(
            "%sparallel.tp_size = %s", states, *sizes ? sizes : "1");
}

enum zd_status job_check_slices(
        const struct train_job *job, const struct model_config *config,
        int world)
{
    struct job_plan plan = {
            .config = *config, .mesh = {.tp = job->parallel.tp}};
    enum zd_status status = ZD_OK;
    if (job->parallel.tp == 1)
        return ZD_OK;
    if (plan_tables(job, &plan) != ZD_OK)
        zd_error_clear(); /* another check reports it */
    else if (!fits(job, &plan, job->parallel.tp))
        status = refuse(job, &plan, world);
    plan.config = (struct model_config){0}; /* borrowed */
    job_plan_fini(&plan);
    return status;
}

/* --- heads ---------------------------------------------------------------- */

static enum zd_status refuse_heads(const struct model_config *slice, int cp)
{
    return ZD_FAIL(
            ZD_ERR_CONFIG, "E0224",
            "parallel.cp_comm_type = \"a2a\": cp_size = %d does not divide the "
            "%d query heads and %d key-value heads of a rank",
            cp, slice->heads, kv_heads_used(slice));
}

/* Bytes of a micro-batch that a place contributes to exchanges with others. */
static uint64_t sends(const struct job_plan *plan, bool by_heads)
{
    struct model_shape shape = plan->shape;
    shape.cp.by_heads = by_heads;
    struct model_exchange exchange = model_exchange(
            plan_slice_config(plan), plan_slice_table(plan), &shape);
    return exchange.heads + exchange.kv_gathered + exchange.kv_scattered;
}

enum zd_status plan_choose_heads(
        const struct train_job *job, struct job_plan *plan)
{
    const struct model_config *slice = plan_slice_config(plan);
    struct cp *cp = &plan->shape.cp;
    bool can = heads_fit(slice, cp->size);
    if (cp->size == 1 || job->cp_comm_type == CP_ALLGATHER)
        return ZD_OK;
    cp->by_heads = can;
    if (job->cp_comm_type == CP_AUTO && can)
        cp->by_heads = sends(plan, true) < sends(plan, false);
    if (job->cp_comm_type == CP_AUTO || can)
        return ZD_OK;
    return refuse_heads(slice, cp->size);
}

enum zd_status job_check_heads(
        const struct train_job *job, const struct model_config *whole,
        int world)
{
    struct job_plan plan; /* for its slice only */
    struct model_config *slice = &plan.slice_config;
    char sizes[SIZES_MAX];
    if (job->cp_comm_type != CP_A2A || job->parallel.cp == 1)
        return ZD_OK;
    ZD_TRY(model_config_slice(whole, (struct tp){job->parallel.tp, 0}, slice));
    if (heads_fit(slice, job->parallel.cp))
        return ZD_OK;
    list_sizes(job, slice->heads, true, world, &plan, sizes);
    refuse_heads(slice, job->parallel.cp);
    return zd_fail_help(
            "%s%s%sparallel.cp_comm_type = \"allgather\"",
            *sizes ? "parallel.cp_size = " : "", sizes, *sizes ? ", or " : "");
}
