/* populate.h - pages behind memory that was mapped, by several threads.
 *
 * The kernel clears a page when it is first touched, and a thread clears 6 to 8
 * GB a second: the driver, which page-locks on one thread, took 11 s for the
 * host's half of an 8B model. */
#ifndef ZD_BASE_DEVICE_POPULATE_H
#define ZD_BASE_DEVICE_POPULATE_H

#include <stddef.h>

/* Puts pages behind all of this anonymous mapping, which begins at a page. A
 * hint: where the kernel cannot (before Linux 5.14), or has no more pages,
 * what is missing comes when it is touched, or is refused then. */
void populate(void *memory, size_t bytes);

#endif
