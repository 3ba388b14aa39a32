/* admission.c - what is free on the machines of a run when it begins. */
#include "base/device/device_memory.h"
#include "base/device/populate.h"
#include "train/plan/fit.h"

#include <stdlib.h>

/* What a rank takes besides its plan: libraries, its program, stacks. */
enum { BESIDE_BYTES = 64 << 20 };

static uint64_t host_free(int local_size)
{
    uint64_t each = device_available_memory() /
                    (uint64_t)(local_size > 0 ? local_size : 1);
    return each > 2 * BESIDE_BYTES ? each - BESIDE_BYTES : each / 2;
}

enum zd_status plan_ask_free(
        struct comm *comm, int local_size, struct plan_free *out)
{
    struct device_facts facts = device_facts();
    const struct plan_free mine = {
            .host = host_free(local_size),
            .device = facts.backend == DEVICE_CUDA ? facts.free_bytes
                                                   : UINT64_MAX};
    void *all;
    ZD_TRY(comm_gather_new(comm, &mine, sizeof mine, &all));
    const struct plan_free *each = all;
    *out = each[0];
    for (int r = 1; r < comm_size(comm); r++) {
        if (each[r].host < out->host)
            out->host = each[r].host;
        if (each[r].device < out->device)
            out->device = each[r].device;
    }
    free(all);
    return ZD_OK;
}

static enum zd_status touch(
        char *memory, size_t bytes, int local_size,
        uint64_t (*free_bytes)(void))
{
    enum { STEP = 16 << 20 };
    for (size_t at = 0; at < bytes; at += STEP) {
        size_t part = bytes - at < STEP ? bytes - at : STEP;
        /* all ranks of the machine may take a piece at once */
        if (free_bytes() < (uint64_t)STEP * 2 * (uint64_t)local_size)
            return ZD_FAIL(
                    ZD_ERR_MEMORY, "E0608",
                    "--force: %zu bytes of memory are needed, %zu are "
                    "missing",
                    bytes, bytes - at);
        populate(memory + at, part);
    }
    return ZD_OK;
}

enum zd_status plan_touch(
        const struct arena *arena, int local_size, uint64_t (*free_bytes)(void))
{
    for (int k = 0; k < ARENA_DISK; k++) {
        bool is_host = device_backend() == DEVICE_CPU || k == ARENA_HOST;
        if (is_host && arena->base[k])
            ZD_TRY(
                    touch(arena->base[k], arena->taken_bytes[k],
                          local_size > 0 ? local_size : 1, free_bytes));
    }
    return ZD_OK;
}
