/* comm_device.h - what the back ends for a device's memory share; for this
 * folder only. */
#ifndef ZD_COMM_COMM_DEVICE_H
#define ZD_COMM_COMM_DEVICE_H

#include "comm/backend.h"

/* The first member of such a back end's own struct: collectives are its own,
 * the rest goes through `control`. */
struct comm_device {
    struct comm base;
    struct comm *control; /* borrowed */
};

/* Fill in what is the same as in `control`. */
void comm_device_init(
        struct comm_device *device, struct comm *control,
        const struct comm_functions *functions);

/* Entries of comm_functions that pass on to control. */
enum zd_status comm_device_barrier(struct comm *comm);
enum zd_status comm_device_broadcast(
        struct comm *comm, void *data, size_t bytes, int root);
enum zd_status comm_device_exchange(
        struct comm *comm, const struct exchange *exchange);
void comm_device_abort(struct comm *comm, int exit_code);

/* What this rank hands to others, whatever the way it travels. */
void comm_device_count(struct comm *comm, const struct comm_op *op);

/* to += from, in memory of the thread's device; stream NULL: the compute one.
 */
enum zd_status comm_device_add(
        struct stream *stream, float *to, const float *from, size_t count);

/* Pinned memory of staged collectives: slots of a piece from every rank and one
 * of this rank's own. */
enum { STAGED_SLOTS = 4 };
size_t staged_pinned_bytes(int size, size_t shard_bytes);

#endif
