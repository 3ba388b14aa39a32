/* internal.h - what the files of the stand-in share. */
#pragma once

#include "tests/cuda/stand_in/stand_in.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define STANDIN_TSAN 1
extern "C" {
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}
#endif

namespace standin
{

/* While one lives, a thread sanitizer does not see what its thread does: tables
 * of our own that callers and streams look into, whose locks would tell it of
 * an order that CUDA does not give. */
struct unseen {
#ifdef STANDIN_TSAN
    unseen(void)
    {
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~unseen()
    {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    }
#else
    unseen(void)
    {
    }
#endif
    unseen(const struct unseen &) = delete;
};

/* The one object of a type. Never destroyed: threads of streams may outlive
 * main. */
template <typename T> T &only(void)
{
    static T *const one = new T();
    return *one;
}

/* It, with its mutex locked. */
template <typename T> struct locked {
    T &one = only<T>();
    std::lock_guard<std::mutex> lock{one.mutex};

    T *operator->(void)
    {
        return &one;
    }
};

/* --- settings and mistakes (settings.cpp) -------------------------------- */

struct settings {
    int gpus;
    int visible[64]; /* the machine's number of each that this process sees */
    uint64_t memory_bytes, context_bytes;
    uint64_t shared_bytes; /* of a multiprocessor */
    int major, minor;
    bool abort;
    bool permuted, reversed;
    uint64_t seed;
    double slow; /* after a kernel nothing happens for so many times its time */
    bool delays;
    uint64_t delay_seed;
    const char *left_out_file; /* of a barrier; NULL: none is */
    int left_out_line;
};
const struct settings &settings(void);

/* delays.cpp; each does nothing unless delays are asked for. */
void delay_at_random(void); /* work of a stream is about to begin */
void wait_at_random(void);  /* the caller, for all devices */
void load_kernel(const void *kernel, int device); /* before its first launch */

/* Says what is wrong on stderr and keeps it for zd_standin_report. */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Failures that tests ask for (zd_standin_fail): of the N-th operation, then
 * those that last. */
enum failure {
    FAIL_MALLOC,
    FAIL_PIN,
    FAIL_STREAM,
    FAIL_LAUNCH,
    FAIL_STICKY,
    FAIL_HANG,
    NO_DEVICE,
    NO_DRIVER,
    OLD_DRIVER,
    BUSY,
    NO_CODE,
    FAILURES
};
/* Counts one such operation; true when it is the one to fail. */
bool fails_now(enum failure failure);
bool lasts(enum failure failure);
/* What every call meets: cudaSuccess, or no device, no driver ... */
cudaError_t start_error(void);
void hang(void); /* until zd_standin_unhang */

struct counters {
    std::atomic<uint64_t> launches, copies, pageable_copies, host_waits,
            host_calls;
    std::atomic<uint64_t> device_bytes, pinned_bytes, reports;
};
struct counters &counters(void);

/* --- devices (device.cpp) ------------------------------------------------ */

/* As the thread's last error; returns it. */
cudaError_t keep(cudaError_t error);
/* Returns an error of the runtime, and keeps it. */
#define TRY(call)                                                              \
    do {                                                                       \
        cudaError_t error_ = keep(call);                                       \
        if (error_)                                                            \
            return error_;                                                     \
    } while (0)
int device(void); /* of the calling thread */
cudaError_t sticky(int device);
void set_sticky(int device, cudaError_t error);
/* What a call begins with: an error of the start, of the device, or of a host
 * function that calls the GPU. */
cudaError_t begin(void);
uint64_t used_bytes(int device);

/* --- memory (memory.cpp) ------------------------------------------------- */

/* board.cpp: says what this process takes of a GPU, and asks what others do. */
void board_put(int device, uint64_t bytes);
uint64_t board_others(int device);

enum kind { PAGEABLE, PINNED, DEVICE };
/* What these bytes are. False: they leave the allocation that they begin in, or
 * were never one; *why says so. */
bool find(
        const void *address, size_t bytes, enum kind *kind_out, int *device_out,
        const char **why);
void *host_of(const void *address);
void *tagged(const void *address); /* as the device's address */
bool is_tagged(const void *address);

/* --- streams (stream.cpp; what events need of them: stream.h) ------------ */

struct stream;
struct stream *stream_of(cudaStream_t handle); /* NULL: no such stream */
/* What a call on a stream begins with: begin(), and the stream there must be.
 */
cudaError_t begin_on(cudaStream_t handle, struct stream **stream_out);
int stream_device(const struct stream *stream);
/* Queues; returns the place in the stream's order. */
uint64_t enqueue(struct stream *stream, std::function<void()> work);
/* Waits for all that is queued. */
void finish(struct stream *stream);
void finish_device(int device);
/* Of the stream's thread that calls; -1 elsewhere. */
int working_device(void);
bool in_host_function(void);

/* --- kernels (launch.cpp, block.cpp) ------------------------------------- */

/* Runs the whole grid; not cudaSuccess: a mistake, which was reported. */
cudaError_t run_grid(const struct zd_emulate_launch &launch);
size_t shared_limit(const void *kernel);

/* The __shared__ arrays of a kernel (statics.cpp): offset and bytes of each in
 * the thread's memory, which begins at `base` (NULL: not known). */
struct static_shared {
    uintptr_t module;
    size_t bytes;
    std::vector<std::pair<uint64_t, size_t>> parts;
    char *base;
};
const struct static_shared *static_shared_of(const void *kernel);
struct static_shared static_shared_here(const void *kernel); /* with base */

/* Of one thread of the host: stacks, shared memory. Lives for ever. */
struct engine;
struct engine *engine_create(void);
void engine_begin(
        struct engine *engine, const struct zd_emulate_launch *launch);
/* One block; not cudaSuccess: a mistake, which was reported. */
cudaError_t engine_run_block(struct engine *engine, uint64_t block);

} // namespace standin
