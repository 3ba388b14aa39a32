/* populate.h - faults in mapped memory, by several threads at once or by one in
 * the background.
 *
 * The kernel clears a page when it is first touched, and a GPU's driver touches
 * the memory that it page-locks from one thread only. */
#pragma once

#include <stddef.h>

/* Faults in a part of an anonymous mapping; its content stays. A hint: before
 * Linux 5.14, or when pages run out, the rest comes (or fails) when it is
 * touched. */
void populate(void *memory, size_t bytes);

/* The same in the background, by one thread of low priority; others may write
 * to the memory meanwhile. NULL when no thread could be started: the pages come
 * when they are touched. */
struct populating;
struct populating *populate_begin(void *memory, size_t bytes);
/* Asks it to stop, and does not wait: on a busy machine it may take a while. */
void populate_stop(struct populating *populating);
/* Waits until it has stopped. Both accept NULL. */
void populate_end(struct populating *populating);
