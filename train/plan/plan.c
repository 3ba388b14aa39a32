/* plan.c - plans a rank's memory and traffic from (job, world) alone. */
#include "train/plan/plan.h"
#include "model/files/config.h"
#include "model/quantized/cut.h"
#include "model/slice.h"
#include "train/plan/fit.h"
#include "zd_config.h"

#include <string.h>

enum zd_status job_plan_config(
        const struct train_job *job, struct model_config *config)
{
    const struct model_options *model = &job->model;
    enum zd_status status =
            model->config
                    ? model_config_parse(
                              model->config, "[model.config]", ZD_ERR_CONFIG,
                              config)
                    : model_config_read(model->path, job->lora.enabled, config);
    if (status != ZD_OK || !model->rope_scaling)
        return status;
    status = model_config_scale_rope(
            model->rope_scaling, "model.rope_scaling", ZD_ERR_CONFIG, config);
    if (status != ZD_OK)
        model_config_fini(config);
    return status;
}

/* Outside a run: nodes as given, else one rank per GPU of this machine; without
 * GPUs, one node has all ranks. */
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
            local_size > 0 ? local_size : gpus, &plan->node_sizes[ZERO_WORLD]);
}

/* A group uses two levels if the world does; if a role's groups differ, the
 * minimum. */
static int node_size_of(const struct job_plan *plan, enum mesh_role role)
{
    int node = plan->node_sizes[ZERO_WORLD];
    int least = mesh_group(plan->mesh, role, 0).size;
    for (int rank = 0; rank < plan->world && node < plan->world; rank++) {
        struct mesh_group group = mesh_group(plan->mesh, role, rank);
        int size = group.place ? 0
                               : comm_group_per_node(
                                         group.first, group.stride, group.size,
                                         node);
        least = size > 0 && size < least ? size : least;
    }
    return least;
}

static void settle_groups(struct job_plan *plan)
{
    for (enum zero_group g = ZERO_SHARD; g < ZERO_WORLD; g++) {
        enum mesh_role role = zero_group_role(g);
        plan->node_sizes[g] = node_size_of(plan, role);
        plan->is_within[g] = mesh_is_within(plan->mesh, role, plan->local_size);
    }
    plan->is_within[ZERO_WORLD] = plan->local_size >= plan->world;
}

/* Chooses the transport of collectives. */
static enum zd_status plan_transport(
        const struct train_job *job, int local_size, const struct comm *comm,
        struct job_plan *plan)
{
    if (!comm) {
        ZD_TRY(expect_transport(job, local_size, plan));
    } else {
        plan->transport = comm_transport(comm);
        plan->node_sizes[ZERO_WORLD] = comm_mesh(comm).node;
    }
    settle_groups(plan);
    return ZD_OK;
}

/* --- what a process has of a GPU besides what it asks for ----------------- *
 *
 * `driver` is measured by a run once it has opened its GPU, the rest is allowed
 * for, by what is known of CUDA 13 on Hopper: on an H100, runs of 23 to 58 GB
 * on one rank hold 0.2 to 0.5 % less than is planned.
 *
 *   driver        a context reserves local memory for every thread that can be
 *                 resident, cudaLimitStackSize (1 KiB) each: 264 MiB on 132
 *                 multiprocessors of 2048. What it holds besides (page tables,
 *                 channels, the runtime's code) is 100 to 200 MiB by reports of
 *                 300 to 450 MiB in all, with modules loaded lazily as has been
 *                 CUDA's default since 12.2.
 *   kernels,      code of what was called. cuBLASLt's kernels are a few hundred
 *   products,     KiB to 2 MiB each, a model has some thirty shapes; its
 *   attention     workspace is the arena's.
 *   collectives   a channel's ring has a buffer of 9.2 MiB on its receiving
 *                 side (NCCL_BUFFSIZE 4 MiB, LL128 4.7, LL 0.5), taken in
 *                 grains of 2 MiB, and a grain on its sending side: 12 MiB.
 *                 Rings only: nothing of ours needs trees. Communicators made
 *                 by a split share them. As many channels as comm.max_ctas
 *                 says, with 0 the 24 of Hopper with NVLink; 64 MiB for its
 *                 code and the rest.
 *   tables        8 bytes for each page of 4 KiB of page-locked memory, which
 *                 an H200 seems to hold: 110 MB more than without them with
 *                 52 GB of states. */
static const uint64_t mib = (uint64_t)1 << 20;

enum {
    STACK_BYTES = 1024,
    BASE_MIB = 192,
    KERNELS_MIB = 16,
    PRODUCTS_MIB = 64,
    ATTENTION_MIB = 32,
    NCCL_MIB = 64,
    CHANNEL_MIB = 12,
    CHANNELS = 24,
    H200_MULTIPROCESSORS = 132
};

/* Resident threads per multiprocessor by compute capability (CUDA C++
 * programming guide, technical specifications). */
static uint64_t threads_of(int major, int minor)
{
    if (major == 7 && minor == 5)
        return 1024;
    if (major == 12 || (major == 8 && minor > 0))
        return 1536;
    return 2048;
}

static int multiprocessors_of(const struct device_facts *facts)
{
    return facts->backend == DEVICE_CUDA ? facts->multiprocessors
                                         : H200_MULTIPROCESSORS;
}

static uint64_t driver_bytes(const struct device_facts *facts)
{
    bool is_gpu = facts->backend == DEVICE_CUDA;
    uint64_t count = (uint64_t)multiprocessors_of(facts);
    uint64_t threads = is_gpu ? threads_of(facts->major, facts->minor) : 2048;
    return count * threads * STACK_BYTES + BASE_MIB * mib;
}

static uint64_t nccl_bytes(
        const struct comm_options *options, const struct device_facts *facts)
{
    int most = comm_max_ctas(options, multiprocessors_of(facts));
    int channels = most > 0 && most < CHANNELS ? most : CHANNELS;
    return (NCCL_MIB + (uint64_t)channels * CHANNEL_MIB) * mib;
}

static struct plan_context context_of(
        const struct train_job *job, const struct job_plan *plan)
{
    struct device_facts facts = device_facts();
    bool is_measured = facts.context_bytes > 0;
    /* a single rank opens it only if the job names it */
    bool has_nccl = plan->transport == COMM_TRANSPORT_NCCL &&
                    (plan->world > 1 || job->comm.backend == COMM_NCCL);
    bool may_cudnn = ZD_HAVE_CUDNN && job->model.attn != ATTENTION_OWN &&
                     job->train.dtype != DTYPE_FP32;
    return (struct plan_context){
            .driver = is_measured ? facts.context_bytes : driver_bytes(&facts),
            .is_measured = is_measured,
            .kernels = KERNELS_MIB * mib,
            .products = PRODUCTS_MIB * mib,
            .attention = may_cudnn ? ATTENTION_MIB * mib : 0,
            .collectives = has_nccl ? nccl_bytes(&job->comm, &facts) : 0,
    };
}

/* --- model, world, transport, batch --------------------------------------- */

enum zd_status plan_tables(const struct train_job *job, struct job_plan *plan)
{
    ZD_TRY(param_table_build(
            &plan->config, job->train.freeze, job->train.freeze_count,
            &plan->table));
    if (!job->lora.enabled)
        return ZD_OK;
    ZD_TRY(lora_config(&job->lora, &plan->adapter));
    ZD_TRY(lora_extend(
            &plan->config, &plan->adapter, &job->lora, &plan->table));
    return lora_quantize(
            &plan->config, &job->lora, train_stored_base(job), &plan->table);
}

enum zd_status plan_slice(
        const struct train_job *job, struct tp tp, struct job_plan *plan)
{
    param_table_fini(&plan->slice_table);
    if (tp.size == 1)
        return ZD_OK;
    ZD_TRY(model_config_slice(&plan->config, tp, &plan->slice_config));
    ZD_TRY(param_table_slice(
            &plan->config, tp, job->train.freeze, job->train.freeze_count,
            &plan->slice_table));
    if (!job->lora.enabled)
        return ZD_OK;
    ZD_TRY(lora_extend(
            &plan->slice_config, &plan->adapter, &job->lora,
            &plan->slice_table));
    codes_cut(&plan->table, &plan->slice_table);
    return ZD_OK;
}

enum zd_status plan_begin(
        const struct train_job *job, int world, int local_size,
        const struct comm *comm, struct job_plan *plan)
{
    memset(plan, 0, sizeof *plan);
    plan->world = world;
    ZD_TRY(mesh_cut(job->parallel, world, &plan->mesh));
    /* outside a run that of rank 0, whose shards are as large as any */
    struct mesh_place place =
            mesh_place(plan->mesh, comm ? comm_rank(comm) : 0);
    plan->cp = (struct cp){plan->mesh.cp, place.cp};
    plan->local_size = plan_local_size(job, world, local_size);
    plan->backend = device_resolve(job->device.backend);
    if (job->device.backend != DEVICE_CPU)
        device_gpu_count(&plan->no_gpu);
    ZD_TRY(plan_transport(job, local_size, comm, plan));
    if (plan->backend == DEVICE_CUDA)
        plan->context = context_of(job, plan); /* tables: job_plan_try */
    int sharing = local_size > 1 ? local_size : world;
    kernels_set_threads(device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(),
            sharing));
    kernels_set_attention(job->model.attn);
    plan->has_update_cores = job->device.cpu_threads > 0 &&
                             job->offload.threads > 0 &&
                             (job->device.cpu_threads + job->offload.threads) *
                                             plan->local_size <=
                                     device_online_cpus();
    int samplers = mesh_samples(plan->mesh, 0).size;
    ZD_TRY(train_resolve_batch(
            &job->train, samplers, world / samplers, &plan->per_device,
            &plan->accumulation, &plan->global_batch));
    ZD_TRY(job_plan_config(job, &plan->config));
    enum zd_status status = job_plan_vocabulary(job, &plan->config);
    ZD_THEN(status, plan_tables(job, plan));
    if (status == ZD_OK)
        status = plan_slice(job, (struct tp){plan->mesh.tp, place.tp}, plan);
    if (status != ZD_OK) {
        job_plan_fini(plan);
        return status;
    }
    uint64_t sharing_host = (uint64_t)plan->local_size;
    plan->tokenizer_bytes = (dataset_growth_bytes(
                                     &job->data, train_counts_samples(job),
                                     &plan->tokenizer_waits) +
                             sharing_host - 1) /
                            sharing_host;
    plan->export_dtype = job->model.dtype >= 0 ? (enum dtype)job->model.dtype
                         : !train_stored_base(job) ? DTYPE_BF16
                                                   : plan->config.storage_dtype;
    return ZD_OK;
}

void job_plan_fini(struct job_plan *plan)
{
    zero_plan_fini(&plan->zero);
    arena_plan_fini(&plan->arena);
    param_table_fini(&plan->slice_table);
    param_table_fini(&plan->table);
    peft_config_fini(&plan->adapter);
    model_config_fini(&plan->config);
    json_decref(plan->measured);
    json_decref(plan->predicted);
    memset(plan, 0, sizeof *plan);
}
