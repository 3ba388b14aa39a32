/* device.h - where kernels run: the CPU, or a GPU of this host.
 *
 * A thread has a current device (device_use; the CPU until then). Kernels,
 * streams made by it and base/device/device_memory.h work on that device. A
 * stream of NULL is the compute stream: on the CPU the caller itself, so that a
 * kernel has finished when it returns; on a GPU the one stream on which a
 * rank's kernels follow each other.
 *
 * Limits: `memory_limit` and `host_memory_limit` are honored on the CPU as
 * well, so that "fits in 12 GiB" can be tested on a machine without a GPU. */
#pragma once

#include "base/device/stream.h"
#include "base/status.h"

#include <stdint.h>

enum device_backend { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
/* Streams of the CPU device (base/device/stream.h). AUTO: threads when
 * something is offloaded, else inline. */
enum device_streams {
    DEVICE_STREAMS_AUTO,
    DEVICE_STREAMS_INLINE,
    DEVICE_STREAMS_THREADS
};

struct device_options { /* [device] */
    enum device_backend backend;
    const char *gpus;      /* "auto", or "2,0": indices among the GPUs that the
                              process sees */
    uint64_t memory_limit; /* bytes per rank; 0 = all there is */
    double memory_limit_fraction; /* > 0: a share ("90%") of what there is */
    uint64_t host_memory_limit;
    double host_memory_limit_fraction;
    int cpu_threads; /* per rank; 0 = OMP_NUM_THREADS, else the affinity mask */
    bool numa_bind;  /* threads and memory of the host near the device */
    enum device_streams streams;
};

struct device_options device_options_default(void);

/* Bytes of memory this process may use: the machine's, or its cgroup's. */
uint64_t device_system_memory(void);
/* Bytes of it that are free or can be reclaimed at once (MemAvailable). */
uint64_t device_available_memory(void);
/* CPUs in the affinity mask of this process. */
int device_affinity_cpus(void);
/* The same as text, "0-3,8"; ends in ".." where `bytes` are too few. */
void device_affinity_list(char *out, size_t bytes);
/* CPUs the machine has online. */
int device_online_cpus(void);
/* CPUs of a rank that shares its mask with `local_size` ranks: mask / ranks, at
 * least 1. When each rank has its own mask (bound by mpirun), the mask is not
 * divided. */
int device_rank_cpus(int mask_cpus, int online_cpus, int local_size);
/* Threads of such a rank: device.cpu_threads, else OMP_NUM_THREADS, else one
 * per CPU of the rank; at most OMP_THREAD_LIMIT, which OpenMP obeys. */
int device_threads(
        const struct device_options *options, int mask_cpus, int online_cpus,
        int local_size);
/* The mode of a rank's streams; `offloads`: something is offloaded. STREAM_CUDA
 * when the thread's device is a GPU. */
enum stream_mode device_stream_mode(
        const struct device_options *options, bool offloads);

/* --- the device of a rank ------------------------------------------------- */

struct device_facts {
    enum device_backend backend; /* DEVICE_CPU or DEVICE_CUDA */
    char name[96];               /* "NVIDIA H200"; of the CPU: "cpu" */
    char uuid[48];               /* "GPU-..."; empty: the CPU */
    char pci[16];                /* "0000:3b:00.0"; empty: not known */
    int index;                   /* among the GPUs that this process sees */
    int major, minor;            /* compute capability */
    int multiprocessors;
    int numa_node;                    /* -1: not known */
    uint64_t total_bytes, free_bytes; /* when it was opened */
    uint64_t context_bytes; /* what the driver took to open it; 0: unknown,
                               other ranks share it */
    int sharers;            /* ranks that share it */
    int driver, runtime;    /* 13000: 13.0; 0: none */
};

/* GPUs that this process may use; 0 also where there is no driver or this
 * program was built without CUDA. Creates no context. *why_out (may be NULL):
 * why there is none, a static sentence. */
int device_gpu_count(const char **why_out);
/* Facts of the GPUs that this process may use, read without creating a context
 * (free and context bytes are 0). Returns how many there are; writes at most
 * `most` of them. */
int device_list(struct device_facts *out, int most);
/* AUTO: what was assumed, else DEVICE_CPU where there is no GPU or no driver at
 * all, else CUDA. */
enum device_backend device_resolve(enum device_backend backend);
/* For a plan of another machine: what AUTO is from now on, in this process. */
void device_assume(enum device_backend backend);

/* Whether it is "auto" or numbers with commas between them. */
bool device_gpus_are_valid(const char *gpus);
/* The index of the device that this rank opens: from the list `options->gpus`,
 * which the host's ranks use round-robin; with "auto" its local rank.
 * ZD_ERR_UNFIT when there is no such GPU. */
enum zd_status device_place(
        const struct device_options *options, int local_rank, int *place_out);
/* How many GPUs device_place hands out: with more ranks than that on a host,
 * some share one. */
int device_places(const struct device_options *options);

struct device;
/* The device of the rank with this number among the `local_size` of its host;
 * ranks take GPUs in turn. `backend` is resolved. ZD_ERR_UNFIT with a cause and
 * a fix: no GPU, no driver or one too old, a GPU of an architecture that this
 * program was not built for, one that is busy or refuses. */
enum zd_status device_open(
        enum device_backend backend, int local_rank, int local_size,
        struct device **device_out);
/* Call after all `sharers` ranks of this host have opened the same GPU. Reads
 * its free memory again and divides it by them (facts.free_bytes). A rank that
 * is alone on it also learns what its context takes (facts.context_bytes). NULL
 * (the CPU): does nothing. ZD_ERR_DEVICE. */
enum zd_status device_share(struct device *device, int sharers);
/* From now on host memory that is page-locked for it may come from any NUMA
 * node. NULL is accepted. */
void device_forget_node(struct device *device);
/* Release everything on it first. NULL is accepted. */
void device_close(struct device *device);
/* The calling thread's current device; NULL: the CPU. */
void device_use(struct device *device);
struct device *device_current(void); /* NULL: the CPU */
enum device_backend device_backend(void);
struct device_facts device_facts(void); /* of the current device */
/* GPU memory is allocated in multiples of this, the driver's mapping
 * granularity. */
enum { DEVICE_GRAIN = 2 << 20 };
/* DEVICE_GRAIN, or 0 on the CPU. */
uint64_t device_grain_bytes(void);
