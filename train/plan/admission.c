/* admission.c - what is free on the machines of a run when it begins. */
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
