/* progress.h - that reads and writes go on, for whoever waits for them.
 *
 *   a thread                              someone who waits
 *   progress_use(&work)
 *   write -> progress_completed()  ---->  work.completed has risen: it goes on
 *   fsync -> progress_completed()         it has not for a minute: given up
 *   progress_use(NULL)
 *
 * base/file says it by itself after each read, write and fsync; whoever calls
 * the system otherwise (mapped files, rings) says it there. Several threads may
 * use one. A single call should not take long: whoever writes gigabytes has
 * them on the disk as he goes, so that the last fsync is a short one.
 *
 * Threads: any; who uses it is a matter of each thread. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct progress {
    _Atomic uint64_t completed; /* reads, writes, fsyncs so far */
};

/* From now on this thread's reads and writes are counted there; NULL: not at
 * all. Borrowed. Returns the previous counter. */
struct progress *progress_use(struct progress *progress);
/* A read, write or fsync of this thread is done. */
void progress_completed(void);
