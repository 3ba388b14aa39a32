/* numa.h - a machine's NUMA nodes as its sysfs tells of them, and a thread kept
 * on the CPUs of one. No library is needed for it.
 *
 * ZEROD_TEST_SYSFS names a folder that is read in place of /sys (tests). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The node of a PCI device, "0000:3b:00.0"; -1: it is not known, or there is
 * but one. */
int numa_node_of_pci(const char *pci);

/* The calling thread, and threads that it starts from here on, run on part
 * `place` of `places` equal parts of the node's CPUs, of those that it may run
 * on. False, and nothing has changed: it may run on none of them, on no others
 * anyway, or on fewer than `places`. */
bool numa_bind(int node, int place, int places);
