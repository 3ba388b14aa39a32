/* plan.c - what a rank will hold and send, from (job, world) alone. */
#include "train/plan/plan.h"
#include "base/device/device_memory.h"
#include "model/files/config.h"
#include "train/plan/fit.h"
#include "zd_config.h"

#include <string.h>

static enum zd_status read_config(
        const struct train_job *job, struct model_config *config)
{
    if (job->model.config)
        return model_config_parse(
                job->model.config, "[model.config]", ZD_ERR_CONFIG, config);
    return job->lora.enabled ? model_config_read_stored(job->model.path, config)
                             : model_config_read(job->model.path, config);
}

static enum zd_status check_positions(
        const struct train_job *job, const struct model_config *config)
{
    if (job->data.cutoff_len <= config->max_positions)
        return ZD_OK;
    ZD_FAIL(ZD_ERR_CONFIG, "E0215",
            "data.cutoff_len = %d is beyond the %d positions of the model",
            job->data.cutoff_len, config->max_positions);
    zd_fail_help("data.cutoff_len = %d", config->max_positions);
    return ZD_ERR_CONFIG;
}

/* Elsewhere than in the run: nodes are as they are said to be, or have a rank
 * for each GPU of this machine; where there is none, one has all. */
static enum zd_status expect_transport(
        const struct train_job *job, int local_size, struct job_plan *plan)
{
    bool on_gpu = plan->backend == DEVICE_CUDA;
    int places = on_gpu ? device_places(&job->device) : 0;
    int ranks = local_size > 0 ? local_size : plan->world;
    int gpus = !on_gpu ? 0 : places > 0 ? places : ranks;
    plan->lacks_nccl =
            on_gpu && !ZD_HAVE_NCCL && job->comm.backend == COMM_AUTO;
    plan->transport =
            comm_transport_expected(&job->comm, on_gpu, local_size, gpus);
    return comm_node_size_expected(
            &job->comm, plan->transport, plan->world,
            local_size > 0 ? local_size : gpus, &plan->node_size);
}

/* How collectives will travel. */
static enum zd_status plan_transport(
        const struct train_job *job, int local_size, const struct comm *comm,
        struct job_plan *plan)
{
    if (!comm)
        return expect_transport(job, local_size, plan);
    plan->transport = comm_transport(comm);
    plan->node_size = comm_mesh(comm).node;
    return ZD_OK;
}

/* [lora]: the table is that of the adapted model. */
static enum zd_status adapt(const struct train_job *job, struct job_plan *plan)
{
    ZD_TRY(lora_config(&job->lora, &plan->adapter));
    ZD_TRY(lora_extend(
            &plan->config, &plan->adapter, &job->lora, &plan->table));
    return lora_quantize(
            &plan->config, &job->lora, train_stored_base(job), &plan->table);
}

enum zd_status plan_begin(
        const struct train_job *job, int world, int local_size,
        const struct comm *comm, struct job_plan *plan)
{
    enum zd_status status;

    memset(plan, 0, sizeof *plan);
    plan->world = world;
    plan->local_size = plan_local_size(job, world, local_size);
    plan->backend = device_resolve(job->device.backend);
    if (job->device.backend != DEVICE_CPU)
        device_gpu_count(&plan->no_gpu);
    ZD_TRY(plan_transport(job, local_size, comm, plan));
    if (plan->backend == DEVICE_CUDA)
        plan->context = plan_context(job, plan);
    plan->context_bytes = plan_context_sum(&plan->context);
    int sharing = local_size > 1 ? local_size : world;
    kernels_set_threads(device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(),
            sharing));
    kernels_set_attention(job->model.attn);
    ZD_TRY(train_resolve_batch(
            &job->train, world, &plan->per_device, &plan->accumulation,
            &plan->global_batch));
    ZD_TRY(read_config(job, &plan->config));
    status = job_plan_vocabulary(job, &plan->config);
    if (status == ZD_OK)
        status = check_positions(job, &plan->config);
    if (status == ZD_OK)
        status = param_table_build(
                &plan->config, job->train.freeze, job->train.freeze_count,
                &plan->table);
    if (status == ZD_OK && job->lora.enabled)
        status = adapt(job, plan);
    if (status != ZD_OK) {
        job_plan_fini(plan);
        return status;
    }
    plan->export_dtype = !job->model.dtype_auto    ? job->model.dtype
                         : !train_stored_base(job) ? DTYPE_BF16
                                                   : plan->config.storage_dtype;
    return ZD_OK;
}

void job_plan_fini(struct job_plan *plan)
{
    zero_plan_fini(&plan->zero);
    arena_plan_fini(&plan->arena);
    param_table_fini(&plan->table);
    peft_config_fini(&plan->adapter);
    model_config_fini(&plan->config);
    json_decref(plan->measured);
    json_decref(plan->predicted);
    memset(plan, 0, sizeof *plan);
}
