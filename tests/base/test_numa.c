/* test_numa.c - nodes of a machine that is a folder; the CPUs are those that
 * this test may run on, split into two nodes. */
#include "base/device/device.h"
#include "base/numa.h"
#include "tests/support/scratch_suite.h"

#include <sched.h>
#include <stdlib.h>

static void write_text(const char *path, const char *text)
{
    scratch_text(&scratch, path, text);
}

/* The n-th CPU that this process may run on. */
static int nth_cpu(int n)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && n-- == 0)
            return (int)cpu;
    return -1;
}

/* Node 0 has the first of the CPUs, node 2 all others and one that is not
 * there. */
static void make_nodes(void)
{
    char text[64];
    scratch_setup();
    setenv("ZEROD_TEST_SYSFS", scratch.dir, 1);
    ZD_PRINT(text, "%d\n", nth_cpu(0));
    write_text("devices/system/node/node0/cpulist", text);
    ZD_PRINT(text, "%d-%d,1023\n", nth_cpu(1), nth_cpu(1) + 512);
    write_text("devices/system/node/node2/cpulist", text);
    write_text("bus/pci/devices/0000:3b:00.0/numa_node", "2\n");
    write_text("bus/pci/devices/0000:3c:00.0/numa_node", "-1\n");
}

TestSuite(numa, .init = make_nodes, .fini = scratch_teardown);

Test(numa, a_device_has_the_node_that_the_system_says)
{
    cr_expect_eq(numa_node_of_pci("0000:3b:00.0"), 2);
    cr_expect_eq(numa_node_of_pci("0000:3c:00.0"), -1);
    cr_expect_eq(numa_node_of_pci("0000:3d:00.0"), -1);
    cr_expect_eq(numa_node_of_pci(""), -1);
}

Test(numa, a_bound_thread_has_the_cpus_of_the_node_and_no_others)
{
    char cpus[32], want[32];
    int count = device_affinity_cpus();
    if (count < 2)
        cr_skip("one CPU");
    cr_expect(!numa_bind(-1, 0, 1));
    cr_expect(!numa_bind(1, 0, 1), "there is no such node");
    cr_expect(!numa_bind(0, 0, 2), "one CPU, two ranks");
    ZD_PRINT(want, "%d", nth_cpu(0));
    cr_assert(numa_bind(0, 0, 1));
    device_affinity_list(cpus, sizeof cpus);
    cr_expect_str_eq(cpus, want);
    cr_expect(!numa_bind(0, 0, 1), "it has no others");
    cr_expect(!numa_bind(2, 0, 1), "it may run on none of them");
}

Test(numa, ranks_of_a_node_have_parts_of_their_own)
{
    char text[64];
    int count = device_affinity_cpus(), second = nth_cpu(1);
    if (count < 2)
        cr_skip("one CPU");
    /* a third node with both, and a machine that has more */
    ZD_PRINT(text, "%d,%d\n", nth_cpu(0), second);
    write_text("devices/system/node/node3/cpulist", text);
    if (count == 2) {
        cr_expect(!numa_bind(3, 1, 2), "it may run on no others anyway");
        return;
    }
    cr_assert(numa_bind(3, 1, 2));
    ZD_PRINT(text, "%d", second);
    char cpus[32];
    device_affinity_list(cpus, sizeof cpus);
    cr_expect_str_eq(cpus, text);
}
