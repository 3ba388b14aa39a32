/* Limits of control groups, as files of a folder that stands for the system. */
#include "base/device/cgroup.h"

#include "tests/support/scratch_suite.h"

TestSuite(cgroup, IN_SCRATCH);

static void write_file(const char *name, const char *text)
{
    scratch_text(&scratch, name, text);
}

#define GROUP "/sys/fs/cgroup/system.slice/slurm/job_7"

Test(cgroup, no_limit_is_reported)
{
    write_file("/proc/self/cgroup", "0::/user\n");
    write_file("/sys/fs/cgroup/user/memory.max", "max\n");
    struct cgroup_memory memory = cgroup_memory(scratch.dir);
    cr_expect_eq(memory.limit, UINT64_MAX);
    cr_expect_eq(memory.free, UINT64_MAX);
}

Test(cgroup, is_that_of_the_process_and_all_above_it)
{
    write_file("/proc/self/cgroup", "0::/system.slice/slurm/job_7\n");
    write_file(GROUP "/memory.max", "1000\n");
    write_file(GROUP "/memory.current", "400\n");
    write_file(
            GROUP "/memory.stat",
            "anon 300\ninactive_file 50\nactive_file 20\n");
    struct cgroup_memory memory = cgroup_memory(scratch.dir);
    cr_expect_eq(memory.limit, 1000);
    cr_expect_eq(memory.free, 670); /* files can be dropped */
    /* one above leaves less */
    write_file("/sys/fs/cgroup/system.slice/memory.max", "5000\n");
    write_file("/sys/fs/cgroup/system.slice/memory.current", "4900\n");
    memory = cgroup_memory(scratch.dir);
    cr_expect_eq(memory.limit, 1000);
    cr_expect_eq(memory.free, 100);
    /* and the root of a container has a limit too */
    write_file("/sys/fs/cgroup/memory.max", "900\n");
    memory = cgroup_memory(scratch.dir);
    cr_expect_eq(memory.limit, 900);
}

Test(cgroup, a_container_has_its_root)
{
    write_file("/proc/self/cgroup", "0::/../../elsewhere\n");
    write_file("/sys/fs/cgroup/memory.max", "700\n");
    cr_expect_eq(cgroup_memory(scratch.dir).limit, 700);
}

Test(cgroup, of_the_first_form)
{
    write_file(
            "/proc/self/cgroup", "5:cpu:/a\n4:memory:/slurm/uid_0/job_1\n"
                                 "1:name=systemd:/init\n0::/\n");
    write_file(
            "/sys/fs/cgroup/memory/slurm/uid_0/job_1/memory.limit_in_bytes",
            "2000\n");
    write_file(
            "/sys/fs/cgroup/memory/slurm/uid_0/job_1/memory.usage_in_bytes",
            "500\n");
    write_file(
            "/sys/fs/cgroup/memory/slurm/uid_0/job_1/memory.stat",
            "total_inactive_file 100\ntotal_active_file 0\n");
    struct cgroup_memory memory = cgroup_memory(scratch.dir);
    cr_expect_eq(memory.limit, 2000);
    cr_expect_eq(memory.free, 1600);
}
