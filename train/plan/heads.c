/* heads.c - what ranks that share a sample exchange for attention
 * (parallel.cp_comm_type): keys and values, or heads. */
#include "base/text_buffer.h"
#include "model/slice.h"
#include "train/plan/fit.h"

static bool fits(const struct model_config *slice, int cp)
{
    return slice->heads % cp == 0 && kv_heads_used(slice) % cp == 0;
}

static enum zd_status refuse(const struct model_config *slice, int cp)
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
    bool can = fits(slice, cp->size);
    if (cp->size == 1 || job->cp_comm_type == CP_ALLGATHER)
        return ZD_OK;
    cp->by_heads = can;
    if (job->cp_comm_type == CP_AUTO && can)
        cp->by_heads = sends(plan, true) < sends(plan, false);
    if (job->cp_comm_type == CP_AUTO || can)
        return ZD_OK;
    return refuse(slice, cp->size);
}

/* "parallel.cp_size = 4 or 2, or ": the sizes that fit the model, the samples
 * and the ranks; "": none does. */
static void list_sizes(
        const struct train_job *job, const struct model_config *slice,
        int world, struct text_buffer *text)
{
    struct mesh_sizes sizes = job->parallel;
    for (sizes.cp = slice->heads; sizes.cp > 1; sizes.cp--)
        if (job->data.cutoff_len % mesh_token_unit(sizes) == 0 &&
            world % ((int64_t)sizes.cp * sizes.tp) == 0 &&
            fits(slice, sizes.cp))
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
    if (fits(&slice, job->parallel.cp))
        return ZD_OK;
    list_sizes(job, &slice, world, &text);
    refuse(&slice, job->parallel.cp);
    return zd_fail_help("%sparallel.cp_comm_type = \"allgather\"", sizes);
}
