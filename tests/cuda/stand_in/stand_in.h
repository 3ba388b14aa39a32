/* stand_in.h - doors of the stand-in for the CUDA runtime and driver: for the
 * emulator's header, for the stand-ins of cublasLt and NCCL, and for tests.
 *
 * A device address is an address of the host with high bits set, so that the
 * host cannot use it by mistake: every dereference of one is a fault.
 *
 * Environment, read once:
 *     ZD_STANDIN_GPUS=1          how many there are
 *     CUDA_VISIBLE_DEVICES=      which of them, in that order; empty: none
 *     ZD_STANDIN_MEMORY=8G       bytes of each; K, M, G
 *     ZD_STANDIN_CONTEXT=64M     what a process takes of it by using it
 *     ZD_STANDIN_CAPABILITY=9.0  7.5: a GPU without tensor cores for bf16
 *     ZD_STANDIN_SHARED=228K     shared memory of a multiprocessor; a block may
 *                                take all of it but 1 KiB
 *     ZD_STANDIN_BOARD           a file: processes see there what the others
 *                                take of a GPU
 *     ZD_STANDIN_ORDER=forward   of blocks, which run one after the other:
 *                                forward, reverse (of the threads in a block
 *                                too), or a seed that permutes them
 *     ZD_STANDIN_SLOW=TIMES      after a kernel its stream does nothing, for so
 *                                many times as long as that took; TIMES@RANK:
 *                                of that rank of Open MPI alone
 *     ZD_STANDIN_DELAYS          a seed: copies and functions of the host begin
 *                                late, now and then; cudaHostRegister, now and
 *                                then, and the first launch of each kernel wait
 *                                for the device, as real ones may
 *     ZD_STANDIN_LEAVE_OUT       norm_rows.cuh:34: this __syncthreads orders
 *                                nothing in the eyes of races/races.cpp
 *     ZD_STANDIN_ABORT=0         1: a report ends the process (SIGABRT)
 *     ZD_STANDIN_FAIL=...        failures, see zd_standin_fail() */
#pragma once

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- addresses ------------------------------------------------------------ */

/* The host's address of a device address; any other address as it is. */
void *zd_standin_host(const void *address);
/* Whether `bytes` from here are within one allocation of the device that is
 * current, or of page-locked memory: what a kernel or a library may touch. */
bool zd_standin_is_reachable(const void *address, size_t bytes);

/* --- streams -------------------------------------------------------------- */

/* Queues work of a library on a stream; `ctx` is the caller's until fn has run.
 * The function runs on the stream's thread and may wait for other processes. */
typedef void zd_standin_fn(void *ctx);
cudaError_t zd_standin_enqueue(
        cudaStream_t stream, zd_standin_fn *fn, void *ctx);
/* From work that runs on a stream: it takes so much longer for events that are
 * recorded from now on, without waiting for it. */
void zd_standin_pass_ms(unsigned ms);
/* From work that runs on a stream: the device has failed, for good. */
void zd_standin_set_sticky(cudaError_t error, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/* --- failures, and what happened ----------------------------------------- */

/* Adds failures, a list with commas; NULL: none from now on, counts restart.
 *     malloc:N    the N-th cudaMalloc from here is refused (1 = the next)
 *     pin:N       the N-th cudaHostRegister
 *     stream:N    the N-th cudaStreamCreate*
 *     launch:N    the N-th launch is refused (not sticky)
 *     sticky:N    the N-th launch fails while it runs: an error for ever
 *     hang:N      the N-th launch never ends (zd_standin_unhang())
 *     no_device, no_driver, old_driver, busy    what opening a GPU meets
 *     no_code     the program was not built for this GPU
 * Whoever counts or opens GPUs and forks has a child that can do neither. */
void zd_standin_fail(const char *failures);
void zd_standin_unhang(void);

struct zd_standin_counters {
    uint64_t launches, copies, pageable_copies;
    uint64_t host_waits;   /* calls that held the host for the device */
    uint64_t host_calls;   /* functions of the host on streams */
    uint64_t device_bytes; /* allocated now, all devices */
    uint64_t pinned_bytes;
    uint64_t reports;
};
struct zd_standin_counters zd_standin_counters(void);
/* The last report of a mistake (also printed on stderr); "" when none. */
const char *zd_standin_report(void);
/* Forgets reports and sticky errors, for tests that provoke them. Nothing may
 * be queued. */
void zd_standin_forget(void);

/* --- for emulate.h ------------------------------------------------------- */

struct zd_emulate_launch {
    const char *name;
    const void *kernel;
    void (*run)(const void *args); /* one thread of the kernel */
    void *args;                    /* from malloc; owned by the launch */
    unsigned grid[3], block[3];
    size_t shared_bytes;
};
/* Translates device addresses among the 8-byte words of an argument. False: a
 * pointer to memory that `device` cannot reach (reported). */
bool zd_emulate_translate(void *value, size_t bytes, bool pointer, int device);
int zd_emulate_device(cudaStream_t stream);
/* Takes over launch->args, also when it fails. */
cudaError_t zd_emulate_enqueue(
        const struct zd_emulate_launch *launch, cudaStream_t stream,
        bool arguments_ok);

/* Of the kernel's thread that runs now. */
#define ZD_EMULATE_TLS __attribute__((tls_model("initial-exec")))
struct zd_emulate_dim {
    unsigned x, y, z;
};
extern __thread struct zd_emulate_dim zd_emulate_thread ZD_EMULATE_TLS;
extern __thread struct zd_emulate_dim zd_emulate_block ZD_EMULATE_TLS;
extern __thread struct zd_emulate_dim zd_emulate_block_dim ZD_EMULATE_TLS;
extern __thread struct zd_emulate_dim zd_emulate_grid_dim ZD_EMULATE_TLS;
extern __thread unsigned zd_emulate_flat_thread ZD_EMULATE_TLS;
extern __thread unsigned char *zd_emulate_shared ZD_EMULATE_TLS;

void zd_emulate_barrier(const char *file, int line);
enum { ZD_EMULATE_EXCHANGE_BYTES = 256 };
/* What the lanes of a mask gave: lane i's bytes at bytes + i * stride, valid
 * until the calling lane's next exchange. */
struct zd_emulate_lanes {
    const unsigned char *bytes;
    unsigned stride;
};
/* Every lane of the mask gives `count` bytes (aligned to 16 in the answer), all
 * wait for each other. */
struct zd_emulate_lanes zd_emulate_warp_exchange(
        unsigned mask, const void *bytes, unsigned count, const char *op,
        const char *file, int line);
/* Reports, and ends the kernel. */
void zd_emulate_fail(const char *file, int line, const char *format, ...)
        __attribute__((format(printf, 3, 4), noreturn));

#ifdef __cplusplus
}
#endif
