/* progress.h - tells a waiting thread that another's reads and writes make
 * progress.
 *
 *   a thread                              someone who waits
 *   progress_use(&work)
 *   write -> progress_completed()  ---->  work.completed has risen: it goes on
 *   fsync -> progress_completed()         it has not for a minute: given up
 *   progress_use(NULL)
 *
 * base/file calls progress_completed after each read, write and fsync; code
 * that does I/O otherwise (mapped files, rings) calls it itself. Several
 * threads may share a counter. No single call should take long: writers of
 * gigabytes flush as they go, so that the last fsync is short.
 *
 * Threads: any; each thread chooses its own counter. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct progress {
    _Atomic uint64_t completed; /* reads, writes, fsyncs so far */
};

/* From now on count this thread's reads and writes there; NULL: do not count.
 * Borrowed. Returns the previous counter. */
struct progress *progress_use(struct progress *progress);
/* A read, write or fsync of this thread is done. */
void progress_completed(void);
