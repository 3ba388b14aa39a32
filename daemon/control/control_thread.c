#include "daemon/control/control_thread.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* mpirun and srun bind a rank to its cores after the fork: who started us still
 * has them all. One core means that the trainer fills it; with more there is
 * room, and the binding stays. A taskset of the user's is his will. */
static void leave_the_trainers_core(void)
{
    cpu_set_t mine, parents;
    bool is_bound = getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") ||
                    getenv("SLURM_STEP_ID");
    if (!is_bound || sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        CPU_COUNT(&mine) > 1)
        return;
    if (sched_getaffinity(getppid(), sizeof parents, &parents) == 0 &&
        CPU_COUNT(&parents) > 1)
        sched_setaffinity(0, sizeof parents, &parents);
}

/* As struct sched_attr of linux/sched/types.h, version 0. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* A short slice: on kernels from 6.12 on such a thread is run soon after it
 * wakes up, for a share that is no larger than others' (EEVDF). Older ones run
 * whoever has slept long first, and take no notice. */
static void ask_for_a_short_slice(void)
{
#ifdef SYS_sched_setattr
    struct attributes attributes = {
            .size = sizeof attributes,
            .policy = SCHED_OTHER,
            .runtime = 100000 /* ns */};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

void control_thread_settle(void)
{
    leave_the_trainers_core();
    ask_for_a_short_slice();
}
