/* comm_choice.c - chooses the transport of collectives on device memory, and
 * what each needs. */
#include "base/device/device.h"
#include "base/log.h"
#include "comm/backend.h"
#include "comm/nccl/nccl.h"
#include "comm/topology.h"
#include "zd_config.h"

/* --- plans ---------------------------------------------------------------- */

enum comm_transport comm_transport_expected(
        const struct comm_options *options, bool on_gpu, int local_size,
        int gpus)
{
    if (!on_gpu)
        return COMM_TRANSPORT_HOST;
    if (options->backend == COMM_MPI || options->backend == COMM_LOCAL)
        return COMM_TRANSPORT_STAGED;
    if (options->backend == COMM_AUTO && (!ZD_HAVE_NCCL || local_size > gpus))
        return COMM_TRANSPORT_STAGED;
    return COMM_TRANSPORT_NCCL;
}

bool comm_reduces_fp32(
        const struct comm_options *options, enum comm_transport transport,
        int world)
{
    enum { RANKS_OF_16_BITS = 64 };
    bool adds_in_type = transport == COMM_TRANSPORT_NCCL &&
                        options->reduce == COMM_REDUCE_FAST;
    if (options->reduce_dtype != COMM_REDUCE_DTYPE_AUTO)
        return options->reduce_dtype == COMM_REDUCE_DTYPE_FP32;
    return adds_in_type && world > RANKS_OF_16_BITS;
}

enum zd_status comm_plan_needs(
        struct arena_plan *plan, const struct comm_needs *needs)
{
    int world = needs->world;
    size_t most = needs->shard_bytes > needs->exchange_bytes
                          ? needs->shard_bytes
                          : needs->exchange_bytes;
    char name[COMM_SPAN_MAX];
    if (needs->transport == COMM_TRANSPORT_HOST)
        return arena_plan_add(
                plan, comm_span_name(needs->name, "staging", name),
                ARENA_DEVICE, SPAN_BUFFERS, comm_staging_bytes(world));
    if (world == 1)
        return ZD_OK;
    if (needs->transport == COMM_TRANSPORT_NCCL)
        return arena_plan_add(
                plan, comm_span_name(needs->name, "device", name), ARENA_DEVICE,
                SPAN_BUFFERS, nccl_device_bytes(needs));
    ZD_TRY(arena_plan_add(
            plan, comm_span_name(needs->name, "pinned", name), ARENA_PINNED,
            SPAN_BUFFERS, staged_pinned_bytes(world, most)));
    return arena_plan_add(
            plan, comm_span_name(needs->name, "staging", name), ARENA_HOST,
            SPAN_BUFFERS, comm_staging_bytes(world));
}

/* --- whose GPU is whose --------------------------------------------------- */

/* The first two ranks that share a GPU; false: there are none. */
static bool find_shared(
        const struct topology *topology, int *first_out, int *second_out)
{
    for (int a = 0; a < topology->size; a++)
        for (int b = a + 1; b < topology->size; b++)
            if (topology_same_gpu(topology, a, b)) {
                *first_out = a;
                *second_out = b;
                return true;
            }
    return false;
}

static bool are_shared(const struct comm *control, bool wants_nccl)
{
    const struct topology_rank *ranks = control->topology->ranks;
    int a, b;
    if (!find_shared(control->topology, &a, &b))
        return false;
    if (control->rank == 0)
        zd_log_info(
                "ranks %d (%s) and %d (%s) share one GPU, %s: %s", a,
                ranks[a].host, b, ranks[b].host, ranks[a].gpu,
                wants_nccl ? "comm.backend = \"nccl\" is tried anyway; NCCL "
                             "may refuse it"
                           : "collectives go through the host");
    return true;
}

/* --- choice --------------------------------------------------------------- */

/* Without the library AUTO logs a notice, NCCL is an error. */
static enum zd_status try_nccl(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out)
{
    enum zd_status status = comm_agree(control, nccl_available());
    if (status == ZD_OK)
        return comm_nccl_create(control, options, comm_out);
    if (options->backend == COMM_NCCL)
        return status;
    if (control->rank == 0)
        zd_log_warning(
                "collectives go through the host: %s", zd_error_get()->what);
    zd_error_clear();
    return comm_staged_create(control, STREAM_CUDA, comm_out);
}

enum zd_status comm_device_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out)
{
    if (device_backend() == DEVICE_CPU) {
        if (options->backend == COMM_NCCL) {
            ZD_FAIL(ZD_ERR_CONFIG, "E1232",
                    "comm.backend = \"nccl\": the ranks compute on the CPU");
            zd_fail_help("comm.backend = \"auto\"");
            return comm_agree(control, ZD_ERR_CONFIG);
        }
        *comm_out = control;
        return ZD_OK;
    }
    bool wants_nccl = options->backend == COMM_NCCL;
    if (!control->topology)
        ZD_TRY(topology_make(control));
    bool is_shared = are_shared(control, wants_nccl);
    bool is_staged = options->backend == COMM_MPI ||
                     options->backend == COMM_LOCAL ||
                     (is_shared && !wants_nccl);
    if (is_staged || (control->size == 1 && !wants_nccl))
        return comm_staged_create(control, STREAM_CUDA, comm_out);
    return try_nccl(control, options, comm_out);
}
