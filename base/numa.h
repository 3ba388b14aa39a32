/* numa.h - NUMA nodes, read from sysfs, and binding a thread to one's CPUs.
 * Needs no library.
 *
 * ZEROD_TEST_SYSFS names a folder that is read instead of /sys (tests). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The node of a PCI device, "0000:3b:00.0"; -1: unknown, or there is only
 * one. */
int numa_node_of_pci(const char *pci);

/* Binds the calling thread, and threads that it starts later, to part `place`
 * of `places` equal parts of the node's CPUs, as far as its affinity mask
 * allows them. False, with nothing changed: the mask has none of them, only
 * them, or fewer than `places`. */
bool numa_bind(int node, int place, int places);
