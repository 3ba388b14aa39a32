/* populate.h - pages behind memory that was mapped, by several threads, or by
 * one beside other work.
 *
 * The kernel clears a page when it is first touched, and the driver, which
 * page-locks what it is given, touches on one thread. */
#pragma once

#include <stddef.h>

/* Puts pages behind all of this, part of an anonymous mapping; what is in it
 * stays. A hint: where the kernel cannot (before Linux 5.14), or has no more
 * pages, what is missing comes when it is touched, or is refused then. */
void populate(void *memory, size_t bytes);

/* The same by one thread of low priority, beside others: what is in the
 * memory stays, whoever writes to it meanwhile. NULL, where there is no thread
 * for it: the pages come when they are touched. */
struct populating;
struct populating *populate_begin(void *memory, size_t bytes);
/* It is to stop, wherever it is; no one waits, for on a busy machine it may
 * take its time. */
void populate_stop(struct populating *populating);
/* Waits until it has. NULL is nothing, to both. */
void populate_end(struct populating *populating);
