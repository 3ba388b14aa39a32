/* machine.h - how fast a machine is, as far as a plan asks. The numbers of a
 * known machine are those of its maker's data sheet, and the share of them that
 * programs reach; where they come from stands beside them (machine.c). */
#ifndef ZD_TRAIN_PLAN_MACHINE_H
#define ZD_TRAIN_PLAN_MACHINE_H

#include "base/device/device.h"
#include "base/number/dtype.h"

struct plan_machine {
    const char *name, *what, *source; /* static */
    double products_16, products_32;  /* FLOP/s of large products, bf16 or fp16
                                         and fp32 */
    double half_tokens; /* rows at which a product has half of that */
    double memory;      /* bytes/s of the device's memory */
    double launch;      /* seconds that a layer costs beside its work */
    double host;        /* bytes/s that one rank's updates on the host move */
    double link;        /* bytes/s between device and host, each way */
    double inside, between; /* bytes/s that a rank sends within its node, and to
                               others */
    double latency;         /* seconds of a step of a collective */
    double disk;            /* bytes/s of a rank, each way */
    bool is_measured;       /* here; else nobody has compared it with a run */
};

/* NULL: there is none of this name. */
const struct plan_machine *plan_machine_find(const char *name);
/* What a backend is taken for where nothing else is said. */
const struct plan_machine *plan_machine_default(enum device_backend backend);
/* Their names, in their order; NULL behind the last. */
const struct plan_machine *plan_machine_at(int index);

#endif
