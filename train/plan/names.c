/* names.c - the names of what a plan chose, and of what it predicts. */
#include "train/plan/fit.h"
#include "train/plan/predict.h"

const char *const plan_resource_names[PLAN_RESOURCES] = {
        "compute", "wire",      "replicas", "places",
        "to host", "to device", "host",     "disk"};
const char *const plan_resource_words[PLAN_RESOURCES] = {
        "compute",
        "the wire between shards",
        "the wire between replicas",
        "the wire of tensor parallelism",
        "copying to the host",
        "copying to the device",
        "updating on the host",
        "the disk"};
const char *const plan_part_names[PLAN_PARTS] = {
        "forward", "backward", "reduce", "update", "gather"};
const char *const plan_exposed_names[PLAN_EXPOSED] = {
        "update", "gathers", "copies", "launches"};

void plan_optimizer_name(
        const struct optim_options *optim, char out[PLAN_NAME_MAX])
{
    bool is_8bit = optim->state_type == OPTIM_STATE_8BIT;
    snprintf(
            out, PLAN_NAME_MAX, "%s%s%s", optim->paged ? "paged_" : "",
            train_optimizer_name(optim->name),
            is_8bit        ? "_8bit"
            : optim->paged ? "_32bit"
                           : "");
}

void plan_checkpointing_name(
        struct checkpointing checkpointing, char out[PLAN_NAME_MAX])
{
    static const char *const names[] = {
            [CHECKPOINTING_NONE] = "none",
            [CHECKPOINTING_SELECTIVE] = "selective",
            [CHECKPOINTING_FULL] = "full",
            [CHECKPOINTING_SQRT] = "sqrt",
            [CHECKPOINTING_AUTO] = "auto"};
    if (checkpointing.mode == CHECKPOINTING_EVERY)
        snprintf(out, PLAN_NAME_MAX, "every:%d", checkpointing.every);
    else
        snprintf(out, PLAN_NAME_MAX, "%s", names[checkpointing.mode]);
}

const char *plan_order_name(bool by_layer)
{
    return by_layer ? "breadth_first" : "depth_first";
}

const char *plan_states_name(const struct optim_options *optim)
{
    static const char *const names[] = {"fp32", "bf16", "8-bit"};
    bool has_none = optim->name == OPTIM_SGD && optim->momentum == 0;
    return has_none ? "no" : names[optim->state_type];
}

const char *plan_masters_name(enum dtype dtype, enum optim_master master)
{
    bool has_masters = dtype != DTYPE_FP32 && master == OPTIM_MASTER_FP32;
    return has_masters ? "fp32 master weights" : "no master weights";
}

const char *plan_tier_name(enum offload_tier tier)
{
    static const char *const names[] = {"none", "cpu", "nvme"};
    return names[tier];
}

const char *plan_transport_name(enum comm_transport transport)
{
    static const char *const names[] = {
            [COMM_TRANSPORT_HOST] = "the host",
            [COMM_TRANSPORT_STAGED] = "the host's memory and MPI",
            [COMM_TRANSPORT_NCCL] = "NCCL"};
    return names[transport];
}

const char *job_plan_base_format(const struct job_plan *plan)
{
    static const char *const nested[] = {
            [QUANT_NF4] = "nf4, scales in 8 bits",
            [QUANT_FP4] = "fp4, scales in 8 bits"};
    const struct param_table *table = &plan->table;
    for (int id = 0; id < table->count; id++)
        if (param_is_quantized(table, id))
            return table->codes[id].nested_block
                           ? nested[table->codes[id].format]
                           : param_codes_name(table);
    return param_has_base(table) ? dtype_name(plan->zero.request.dtype) : NULL;
}

const char *job_plan_cp_comm(const struct job_plan *plan)
{
    if (plan->mesh.cp == 1)
        return NULL;
    return cp_by_heads(&plan->shape) ? "a2a" : "allgather";
}

const char *plan_backend_name(const struct job_plan *plan)
{
    return plan->backend == DEVICE_CUDA ? "cuda" : "cpu";
}
