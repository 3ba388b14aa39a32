/* slices.c - what a tensor's slice must be for its states: with tensor
 * parallelism (model/slice.h), and not settled by the model's sizes alone; and
 * what ranks that share a sample exchange for attention
 * (parallel.cp_comm_type): keys and values, or heads. */
#include "base/text_buffer.h"
#include "kernels/elementwise/masked.h"
#include "model/adapters/lora.h"
#include "model/fp8.h"
#include "model/quantized/cut.h"
#include "model/slice.h"
#include "optim/optimizers.h"
#include "train/plan/fit.h"

#include <string.h>

enum refusal { FITS, CUTS_BLOCKS, CUTS_WORDS, CUTS_CODES, CUTS_TILES };

/* Rows or columns of a range that each place has. */
static int64_t share_of(const struct param *param, int range)
{
    const struct param_slice *slice = &param->slice;
    int64_t end = range + 1 < slice->range_count
                          ? slice->ranges[range + 1].here
                          : param->shape[slice->by_column];
    return end - slice->ranges[range].here;
}

/* Are blocks of the slice blocks of the whole tensor, on each place? */
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

/* Do elements that share a call of random numbers lie on two places? */
static bool cuts_words(const struct train_job *job, const struct param *param)
{
    bool drops = job->lora.lora_dropout > 0 || job->lora.path;
    return drops && param->part == PARAM_LORA_A && param->slice.by_column &&
           param->shape[1] % DROPOUT_WORDS;
}

/* Do places share a tile of a weight that has one scale? A weight whose sides
 * are no multiples of FP8_ALIGN is not in FP8. */
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

/* The first tensor that does not fit. */
static enum refusal look(
        const struct train_job *job, const struct param_table *table, int place,
        const struct param **tensor_out)
{
    for (int id = 0; id < table->count; id++) {
        const struct param *param = *tensor_out = &table->params[id];
        if (param_is_quantized(table, id) &&
            !codes_can_cut(param, param_whole_codes(table, id)))
            return CUTS_CODES;
        if (cuts_tiles(job, param))
            return CUTS_TILES;
        if (!param->trainable)
            continue;
        if (is_8bit(&job->optim, param) && cuts_blocks(param, place))
            return CUTS_BLOCKS;
        if (cuts_words(job, param))
            return CUTS_WORDS;
    }
    return FITS;
}

/* Has the slice of a plan of so many places nothing that must stay together? */
static bool fits(const struct train_job *job, struct job_plan *plan, int size)
{
    const struct param *tensor;
    if (plan_slice(job, (struct tp){size, 0}, plan) == ZD_OK)
        return look(job, plan_slice_table(plan), 0, &tensor) == FITS;
    zd_error_clear();
    return false;
}

static enum zd_status check(
        const struct train_job *job, const struct param_table *table,
        struct tp tp)
{
    const struct param *tensor;
    enum refusal refusal = look(job, table, tp.place, &tensor);
    if (refusal == CUTS_WORDS)
        ZD_FAIL(ZD_ERR_CONFIG, "E0224",
                "parallel.tp_size = %d cuts the inputs of `%s` into shares of "
                "%lld, and dropout needs a multiple of %d",
                tp.size, tensor->name, (long long)tensor->shape[1],
                DROPOUT_WORDS);
    else if (refusal == CUTS_CODES)
        ZD_FAIL(ZD_ERR_CONFIG, "E0224",
                "parallel.tp_size = %d cuts `%s` within blocks whose %s codes "
                "share a scale",
                tp.size, tensor->name, param_codes_name(table));
    else if (refusal == CUTS_TILES)
        ZD_FAIL(ZD_ERR_CONFIG, "E0224",
                "parallel.tp_size = %d cuts `%s` within tiles of %d x %d, "
                "which share a scale with train.fp8 = \"blockwise\"",
                tp.size, tensor->name, FP8_BLOCK, FP8_BLOCK);
    else if (refusal == CUTS_BLOCKS)
        ZD_FAIL(ZD_ERR_CONFIG, "E0224",
                "parallel.tp_size = %d cuts `%s` within blocks of %d elements, "
                "whose 8-bit states share a scale",
                tp.size, tensor->name, OPTIM_QBLOCK);
    return refusal == FITS ? ZD_OK : ZD_ERR_CONFIG;
}

enum zd_status plan_check_slices(
        const struct train_job *job, const struct job_plan *plan)
{
    return plan->mesh.tp == 1
                   ? ZD_OK
                   : check(job, &plan->slice_table, plan->slice_config.tp);
}

/* "8 or 4 or 2": the sizes that fit the model, the samples and the ranks. */
static void list_sizes(
        const struct train_job *job, struct job_plan *plan, int world,
        struct text_buffer *text)
{
    struct mesh_sizes sizes = job->parallel;
    for (sizes.tp = plan->config.heads; sizes.tp > 1; sizes.tp--)
        if (job->data.cutoff_len % mesh_token_unit(sizes) == 0 &&
            world % ((int64_t)sizes.cp * sizes.tp) == 0 &&
            fits(job, plan, sizes.tp))
            text_buffer_add(text, "%s%d", text->used ? " or " : "", sizes.tp);
    if (!text->used)
        text_buffer_add(text, "1");
}

static enum zd_status refuse(
        const struct train_job *job, struct job_plan *plan, int world)
{
    const struct tp tp = {job->parallel.tp, 0};
    const struct optim_options *optim = &job->optim;
    const struct param *tensor;
    char sizes[120] = "", states[80] = "";
    struct text_buffer text = {.out = sizes, .bytes = sizeof sizes};
    list_sizes(job, plan, world, &text);
    if (plan_slice(job, tp, plan) == ZD_OK) {
        enum refusal refusal = look(job, &plan->slice_table, 0, &tensor);
        if (refusal == CUTS_TILES)
            snprintf(states, sizeof states, "train.fp8 = \"tensorwise\", or ");
        else if (refusal == CUTS_BLOCKS)
            snprintf(
                    states, sizeof states, "optim.name = \"%s%s%s\", or ",
                    optim->paged ? "paged_" : "",
                    optimizer_of(optim->name)->name,
                    optim->paged ? "_32bit" : "");
        check(job, &plan->slice_table, tp);
    }
    return zd_fail_help("%sparallel.tp_size = %s", states, sizes);
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
        zd_error_clear(); /* others tell */
    else if (!fits(job, &plan, job->parallel.tp))
        status = refuse(job, &plan, world);
    plan.config = (struct model_config){0}; /* borrowed */
    job_plan_fini(&plan);
    return status;
}

/* --- heads ---------------------------------------------------------------- */

static bool heads_fit(const struct model_config *slice, int cp)
{
    return slice->heads % cp == 0 && kv_heads_used(slice) % cp == 0;
}

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

/* "parallel.cp_size = 4 or 2, or ": the sizes that fit the model, the samples
 * and the ranks; "": none does. */
static void list_cp_sizes(
        const struct train_job *job, const struct model_config *slice,
        int world, struct text_buffer *text)
{
    struct mesh_sizes sizes = job->parallel;
    for (sizes.cp = slice->heads; sizes.cp > 1; sizes.cp--)
        if (job->data.cutoff_len % mesh_token_unit(sizes) == 0 &&
            world % ((int64_t)sizes.cp * sizes.tp) == 0 &&
            heads_fit(slice, sizes.cp))
            text_buffer_add(
                    text, "%s%d",
                    text->used ? " or " : "parallel.cp_size = ", sizes.cp);
    if (text->used)
        text_buffer_add(text, ", or ");
}

enum zd_status job_check_heads(
        const struct train_job *job, const struct model_config *whole,
        int world)
{
    struct model_config slice;
    struct tp tp = {job->parallel.tp, 0};
    char sizes[120] = "";
    struct text_buffer text = {.out = sizes, .bytes = sizeof sizes};
    if (job->cp_comm_type != CP_A2A || job->parallel.cp == 1)
        return ZD_OK;
    ZD_TRY(model_config_slice(whole, tp, &slice));
    if (heads_fit(&slice, job->parallel.cp))
        return ZD_OK;
    list_cp_sizes(job, &slice, world, &text);
    refuse_heads(&slice, job->parallel.cp);
    return zd_fail_help("%sparallel.cp_comm_type = \"allgather\"", sizes);
}
