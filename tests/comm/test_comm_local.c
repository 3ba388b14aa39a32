/* The suite over threads of one process, groups of 1 to 8; TAP. Also under a
 * thread sanitizer. */
#include "tests/comm/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE_MAX_TESTED = 8, CASES_MAX = 32 };

struct member {
    struct comm *comm;
    bool holds[CASES_MAX];
};

static void *run_member(void *arg)
{
    struct member *member = arg;
    for (int c = 0; c < suite_case_count; c++)
        member->holds[c] = suite_cases[c].run(member->comm);
    comm_destroy(member->comm);
    return NULL;
}

static int tests_run, tests_failed;

static void report(bool holds, int size, const char *name)
{
    tests_run++;
    tests_failed += !holds;
    printf("%s %d - %d ranks: %s\n", holds ? "ok" : "not ok", tests_run, size,
           name);
}

static void run_threads(
        int size, void *(*function)(void *), struct member *members)
{
    pthread_t threads[SIZE_MAX_TESTED];
    for (int r = 0; r < size; r++)
        if (pthread_create(&threads[r], NULL, function, &members[r]) != 0)
            abort();
    for (int r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
}

static void create_group(int size, struct member *members)
{
    struct comm *comms[SIZE_MAX_TESTED];
    struct comm_options options = {.backend = COMM_LOCAL};
    if (comm_local_create(size, &options, comms) != ZD_OK)
        abort();
    for (int r = 0; r < size; r++)
        members[r] = (struct member){.comm = comms[r]};
}

static void run_suite(int size)
{
    struct member members[SIZE_MAX_TESTED];
    create_group(size, members);
    run_threads(size, run_member, members);
    for (int c = 0; c < suite_case_count; c++) {
        bool holds = true;
        for (int r = 0; r < size; r++)
            holds &= members[r].holds[c];
        report(holds, size, suite_cases[c].name);
    }
}

/* The last rank ends the job while the others wait in different places. */
static void *leave_or_wait(void *arg)
{
    struct member *member = arg;
    struct comm *comm = member->comm;
    float full[4] = {0};
    struct comm_op *op;
    enum zd_status status = ZD_OK;
    if (comm_rank(comm) == 3) {
        usleep(1000);
        comm_abort(comm, 75);
        status = ZD_ERR_PEER;
    } else if (comm_rank(comm) == 0) {
        status = comm_barrier(comm);
    } else {
        status = comm_all_gather_begin(comm, full, full, 1, DTYPE_FP32, &op);
        if (status == ZD_OK)
            status = comm_wait(comm, op);
    }
    member->holds[0] = status == ZD_ERR_PEER;
    comm_destroy(comm);
    return NULL;
}

static void run_abort(void)
{
    struct member members[SIZE_MAX_TESTED];
    bool holds = true;
    create_group(4, members);
    run_threads(4, leave_or_wait, members);
    for (int r = 0; r < 4; r++)
        holds &= members[r].holds[0];
    report(holds, 4, "an abort reaches the ranks that wait");
}

/* Every size; under the thread sanitizer, for which all take two minutes, one
 * of each kind: alone, even, odd, the largest. */
static bool is_tested(int size)
{
#ifdef __SANITIZE_THREAD__
    return size <= 3 || size == 5 || size == SIZE_MAX_TESTED;
#else
    return true;
#endif
}

int main(void)
{
    for (int size = 1; size <= SIZE_MAX_TESTED; size++)
        if (is_tested(size))
            run_suite(size);
    run_abort();
    printf("1..%d\n", tests_run);
    return tests_failed != 0;
}
