#include "train/rank_device.h"

#include "base/device_memory.h"
#include "base/log.h"
#include "base/text_buffer.h"
#include "train/trainer.h"
#include "zd_config.h"

#include <stdlib.h>
#include <string.h>

/* What ranks tell each other about their devices. */
struct rank_device {
    char host[64], uuid[48];
    int32_t backend;
};

static struct rank_device describe(const struct trainer *trainer)
{
    struct rank_device mine;
    struct device_facts facts = device_facts();
    memset(&mine, 0, sizeof mine); /* padding too: it is sent */
    snprintf(mine.host, sizeof mine.host, "%s", comm_host(trainer->comm));
    snprintf(mine.uuid, sizeof mine.uuid, "%s", facts.uuid);
    mine.backend = facts.backend;
    return mine;
}

static bool is_shared(const struct rank_device *a, const struct rank_device *b)
{
    return a->backend == DEVICE_CUDA && b->backend == DEVICE_CUDA &&
           strcmp(a->host, b->host) == 0 && strcmp(a->uuid, b->uuid) == 0;
}

/* With "auto" a host without a GPU would compute on its CPU. */
static enum zd_status check_same(const struct rank_device *all, int size)
{
    for (int r = 1; r < size; r++) {
        if (all[r].backend == all[0].backend)
            continue;
        int with = all[0].backend == DEVICE_CUDA ? 0 : r, without = r - with;
        ZD_FAIL(ZD_ERR_UNFIT, "E1250",
                "rank %d on %s has a GPU and rank %d on %s has none", with,
                all[with].host, without, all[without].host);
        zd_fail_help("device.backend = \"cpu\", or hosts that all have GPUs");
        return ZD_ERR_UNFIT;
    }
    return ZD_OK;
}

/* The ranks of the first GPU that several of them have. */
static void tell_shared(const struct rank_device *all, int size)
{
    char line[160] = "";
    struct text_buffer text = {.out = line, .bytes = sizeof line};
    for (int r = 0; r < size; r++) {
        for (int other = r; other < size; other++)
            if (is_shared(&all[r], &all[other]))
                text_buffer_add(&text, "%s%d", text.used ? ", " : "", other);
        if (strchr(line, ',')) {
            zd_log_warning(
                    "ranks %s share one GPU of %s (%s): each may take its part "
                    "of what is free, and they compute in turns",
                    line, all[r].host, all[r].uuid);
            return;
        }
        text.used = 0;
    }
}

static enum zd_status compare(struct trainer *trainer)
{
    int size = comm_size(trainer->comm), rank = comm_rank(trainer->comm);
    struct rank_device mine = describe(trainer);
    struct rank_device *all = malloc((size_t)size * sizeof *all);
    if (!all)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status status =
            comm_gather_all(trainer->comm, &mine, sizeof mine, all);
    if (status == ZD_OK)
        status = check_same(all, size);
    trainer->device_sharers = 0;
    for (int r = 0; status == ZD_OK && r < size; r++)
        trainer->device_sharers += is_shared(&all[rank], &all[r]);
    if (status == ZD_OK && rank == 0)
        tell_shared(all, size);
    free(all);
    return status;
}

/* Where a GPU could have been taken. */
static void tell_fallback(const struct trainer *trainer)
{
    const char *why;
    if (!ZD_HAVE_CUDA || !trainer_is_first(trainer) ||
        trainer->job->device.backend != DEVICE_AUTO ||
        device_gpu_count(&why) > 0)
        return;
    zd_log_info("the CPU computes: %s", why);
}

enum zd_status rank_device_open(struct trainer *trainer)
{
    int place;
    struct comm *comm = trainer->comm;
    const struct device_options *options = &trainer->job->device;
    enum zd_status status =
            device_place(options, comm_local_rank(comm), &place);
    if (status == ZD_OK)
        status = device_open(
                device_resolve(options->backend), place, comm_local_size(comm),
                &trainer->device);
    tell_fallback(trainer);
    ZD_TRY(comm_agree(comm, status));
    device_use(trainer->device);
    ZD_TRY(compare(trainer)); /* every rank has opened its own by now */
    status = device_share(trainer->device, trainer->device_sharers);
    return comm_agree(comm, status);
}

void rank_device_close(struct trainer *trainer)
{
    device_use(NULL);
    device_close(trainer->device);
    trainer->device = NULL;
}

uint64_t rank_device_context_bytes(const struct trainer *trainer)
{
    uint64_t used, taken = trainer->arena.taken_bytes[ARENA_DEVICE];
    if (trainer->device_sharers != 1)
        return 0;
    if (device_used_bytes(&used) != ZD_OK) {
        zd_error_clear();
        return 0;
    }
    return used > taken ? used - taken : 0;
}
