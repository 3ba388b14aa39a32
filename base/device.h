/* device.h - where kernels run. This header knows the CPU device and names the
 * stream that every kernel takes; on the CPU a stream is NULL and a kernel has
 * finished when it returns.
 *
 * Limits: `memory_limit` and `host_memory_limit` are honoured on the CPU as
 * well, so that "fits in 12 GiB" can be tested on a machine without a GPU. */
#ifndef ZD_BASE_DEVICE_H
#define ZD_BASE_DEVICE_H

#include "base/status.h"
#include "base/stream.h"

#include <stdint.h>

enum device_backend { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
/* Streams of the CPU device (base/stream.h). AUTO: threads when something is
 * offloaded, else inline. */
enum device_streams {
    DEVICE_STREAMS_AUTO,
    DEVICE_STREAMS_INLINE,
    DEVICE_STREAMS_THREADS
};

struct device_options { /* [device] */
    enum device_backend backend;
    uint64_t memory_limit;        /* bytes per rank; 0 = all there is */
    double memory_limit_fraction; /* > 0: a share ("90%") of what there is */
    uint64_t host_memory_limit;
    double host_memory_limit_fraction;
    int cpu_threads; /* per rank; 0 = from the affinity mask */
    enum device_streams streams;
};

struct device_options device_options_default(void);

/* Bytes of memory this process may use: the machine's, or its cgroup's. */
uint64_t device_system_memory(void);
/* Bytes of it that nobody uses, or that can be had at once (MemAvailable). */
uint64_t device_available_memory(void);
/* CPUs in the affinity mask of this process. */
int device_affinity_cpus(void);
/* The same as text, "0-3,8"; ends in ".." where `bytes` are too few. */
void device_affinity_list(char *out, size_t bytes);
/* CPUs the machine has online. */
int device_online_cpus(void);
/* Threads for a rank that shares its CPUs with `local_size` ranks: the explicit
 * count, else mask / ranks that share the mask, at least 1. When every rank has
 * a mask of its own (bound by mpirun), the mask is not divided. */
int device_threads(
        const struct device_options *options, int mask_cpus, int online_cpus,
        int local_size);
/* How the streams of a rank work; `offloads`: something is. */
enum stream_mode device_stream_mode(
        const struct device_options *options, bool offloads);

#endif
