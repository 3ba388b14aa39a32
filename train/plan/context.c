/* context.c - what a process has of a GPU besides what it asks for.
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
 *                 code and the rest. */
#include "train/plan/fit.h"
#include "zd_config.h"

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

/* Threads that can be resident on a multiprocessor, by compute capability
 * (CUDA C++ programming guide, technical specifications). */
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

struct plan_context plan_context(
        const struct train_job *job, const struct job_plan *plan)
{
    struct device_facts facts = device_facts();
    bool is_measured = facts.context_bytes > 0;
    /* one rank opens it only where the job names it */
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

uint64_t plan_context_sum(const struct plan_context *context)
{
    return context->driver + context->kernels + context->products +
           context->attention + context->collectives;
}
