#include "train/trainer/rank_device.h"

#include "base/device/device_memory.h"
#include "base/log.h"
#include "base/must.h"
#include "base/numa.h"
#include "base/text_buffer.h"
#include "base/threads.h"
#include "base/units.h"
#include "comm/topology.h"
#include "kernels/kernels.h"
#include "train/plan/fit.h"
#include "train/trainer/trainer.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>

/* With "auto" a host without a GPU would compute on its CPU. All ranks find
 * this, so only the first reports it. */
static enum zd_status check_same(const struct topology *topology)
{
    const struct topology_rank *all = topology->ranks;
    for (int r = 1; r < topology->size; r++) {
        if (all[r].backend == all[0].backend)
            continue;
        int with = all[0].backend == DEVICE_CUDA ? 0 : r, without = r - with;
        ZD_FAIL(ZD_ERR_UNFIT, "E1250",
                "rank %d on %s has a GPU and rank %d on %s has none", with,
                all[with].host, without, all[without].host);
        return zd_fail_help(
                "device.backend = \"cpu\", or hosts that all have GPUs");
    }
    return ZD_OK;
}

/* Logs which ranks share a GPU, for the first such GPU. */
static void tell_shared(const struct topology *topology)
{
    struct text_buffer text = TEXT_BUFFER(160);
    for (int r = 0; r < topology->size; r++) {
        if (topology_sharers(topology, r) < 2)
            continue;
        for (int other = r; other < topology->size; other++)
            if (topology_same_gpu(topology, r, other))
                text_buffer_add(&text, "%s%d", text.used ? ", " : "", other);
        zd_log_warning(
                "ranks %s share one GPU of %s (%s): each may take its part of "
                "what is free, and they compute in turns",
                text.out, topology->ranks[r].host, topology->ranks[r].gpu);
        return;
    }
}

/* Ranks whose GPUs are on the same NUMA node divide its CPUs. Call before any
 * worker thread of this rank starts. */
static void bind_near(const struct topology *topology, int rank)
{
    const struct topology_rank *mine = &topology->ranks[rank];
    int place = 0, places = 0;
    for (int r = 0; r < topology->size; r++) {
        bool is_near = topology->ranks[r].numa_node == mine->numa_node &&
                       topology_same_host(topology, r, rank);
        place += is_near && r < rank;
        places += is_near;
    }
    if (mine->backend == DEVICE_CUDA &&
        numa_bind(mine->numa_node, place, places))
        zd_log_debug("on CPUs of NUMA node %d, the GPU's", mine->numa_node);
}

/* Compares the ranks' devices, once all are open. */
static enum zd_status compare(struct trainer *trainer)
{
    struct comm *comm = trainer->comm;
    ZD_TRY(topology_make(comm));
    const struct topology *topology = comm_topology(comm);
    ZD_TRY(COMM_FIRST(comm, check_same(topology)));
    trainer->device_sharers = topology_sharers(topology, comm_rank(comm));
    if (trainer_is_first(trainer))
        tell_shared(topology);
    if (trainer->job->device.numa_bind)
        bind_near(topology, comm_rank(comm));
    return ZD_OK;
}

/* Logs why no GPU is used although one could have been. */
static void tell_fallback(const struct trainer *trainer)
{
    const char *why;
    if (!ZD_HAVE_CUDA || !trainer_is_first(trainer) ||
        trainer->job->device.backend != DEVICE_AUTO ||
        device_resolve(DEVICE_AUTO) != DEVICE_CPU)
        return;
    device_gpu_count(&why);
    zd_log_info("the CPU computes: %s", why);
}

static void *open_libraries(void *unused)
{
    kernels_open_libraries();
    return unused;
}

/* Opens the GPU's libraries in parallel with the GPU. */
static enum zd_status open_with_libraries(
        struct trainer *trainer, enum device_backend backend, int place)
{
    pthread_t helper;
    bool has_helper =
            backend == DEVICE_CUDA &&
            thread_start(&helper, "zerod-open", open_libraries, NULL) == 0;
    enum zd_status status = device_open(
            backend, place, comm_local_size(trainer->comm), &trainer->device);
    if (has_helper)
        pthread_join(helper, NULL);
    return status;
}

enum zd_status rank_device_open(struct trainer *trainer)
{
    int place;
    struct comm *comm = trainer->comm;
    const struct device_options *options = &trainer->job->device;
    enum zd_status status =
            device_place(options, comm_local_rank(comm), &place);
    ZD_THEN(status, open_with_libraries(
                            trainer, device_resolve(options->backend), place));
    tell_fallback(trainer);
    ZD_TRY(comm_agree(comm, status));
    if (!options->numa_bind)
        device_forget_node(trainer->device);
    device_use(trainer->device);
    ZD_TRY(compare(trainer));
    status = device_share(trainer->device, trainer->device_sharers);
    return comm_agree(comm, status);
}

void rank_device_close(struct trainer *trainer)
{
    device_use(NULL);
    device_close(trainer->device);
    trainer->device = NULL;
}

int rank_device_threads(const struct train_job *job, struct comm *comm)
{
    return device_threads(
            &job->device, device_affinity_cpus(), device_online_cpus(),
            comm_local_size(comm));
}

/* Estimates other processes' memory on the GPU at the start: all used memory
 * minus the driver's for each of our ranks. */
static uint64_t others_bytes(
        const struct trainer *trainer, const struct device_facts *facts)
{
    uint64_t sharers = (uint64_t)trainer->device_sharers;
    uint64_t used = facts->total_bytes - facts->free_bytes * sharers;
    uint64_t ours = trainer->plan.context.driver * sharers;
    return used > ours ? used - ours : 0;
}

void rank_device_measure(
        const struct trainer *trainer, struct train_gpu_report *out)
{
    struct device_facts facts = device_facts();
    memset(out, 0, sizeof *out);
    if (facts.backend != DEVICE_CUDA)
        return;
    ZD_PRINT(out->name, "%.63s", facts.name);
    ZD_PRINT(out->uuid, "%s", facts.uuid);
    ZD_PRINT(out->pci, "%s", facts.pci);
    out->total = facts.total_bytes;
    out->planned = plan_device_bytes(&trainer->plan);
    if (device_used_bytes(&out->used) != ZD_OK)
        zd_error_clear(); /* the next step reports the error */
    uint64_t others = others_bytes(trainer, &facts);
    out->held = (out->used > others ? out->used - others : 0) /
                (uint64_t)trainer->device_sharers;
    out->is_shared = others > out->total / 64 ||
                     out->held < out->planned - trainer->plan.context_bytes;
}

static json_t *measured_json(const struct train_gpu_report *all, int size)
{
    json_t *list = json_array();
    for (int r = 0; r < size; r++) {
        json_t *gpu = train_gpu_json(&all[r]);
        json_object_set_new(gpu, "rank", json_integer(r));
        json_array_append_new(list, gpu);
    }
    return list;
}

/* Logs the report of the rank that holds most. */
static void log_measured(const struct train_gpu_report *all, int size)
{
    int most = 0;
    for (int r = 1; r < size; r++)
        if (all[r].held > all[most].held)
            most = r;
    double held = units_mib(all[most].held),
           planned = units_mib(all[most].planned);
    if (all[most].is_shared)
        return;
    zd_log_info(
            "rank %d holds %.0f MiB of %s (%s), where %.0f MiB were planned "
            "(%+.1f %%); in use there %.0f of %.0f MiB",
            most, held, all[most].name, all[most].pci, planned,
            planned > 0 ? 100 * (held - planned) / planned : 0,
            units_mib(all[most].used), units_mib(all[most].total));
}

enum zd_status rank_device_tell(struct trainer *trainer)
{
    struct train_gpu_report mine;
    int size = comm_size(trainer->comm);
    if (device_backend() != DEVICE_CUDA)
        return ZD_OK;
    ZD_FREED void *all = NULL;
    rank_device_measure(trainer, &mine);
    ZD_TRY(comm_gather_new(trainer->comm, &mine, sizeof mine, &all));
    if (trainer_is_first(trainer)) {
        if (!trainer->plan.measured)
            trainer->plan.measured = measured_json(all, size);
        log_measured(all, size);
    }
    return ZD_OK;
}
