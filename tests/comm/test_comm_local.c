/* The suite over threads of one process, groups of 1 to 8; `staged`: through
 * staged collectives on the CPU device, whose streams are inline or threads.
 * TAP. Also under a thread sanitizer, which finds events that are not waited
 * for. */
#include "tests/comm/group.h"
#include "tests/support/tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS = 4 };

/* The last rank ends the job while the others wait in different places. NULL:
 * all is as it shall be. */
static void *leave_or_wait(void *ctx)
{
    struct comm *comm = ctx;
    float full[RANKS] = {0};
    struct comm_op *op;
    enum zd_status status = ZD_OK;
    if (comm_rank(comm) == RANKS - 1) {
        usleep(1000);
        comm_local_abort(comm);
        status = ZD_ERR_PEER;
    } else if (comm_rank(comm) == 0) {
        status = comm_barrier(comm);
    } else {
        status = comm_begin(
                comm,
                &(struct comm_op){
                        .kind = COMM_ALL_GATHER,
                        .from = full,
                        .to = full,
                        .count = 1},
                &op);
        ZD_THEN(status, comm_wait(comm, op));
    }
    comm_destroy(comm);
    return status == ZD_ERR_PEER ? NULL : ctx;
}

static bool abort_reaches_all(void)
{
    struct comm *comms[RANKS];
    pthread_t threads[RANKS];
    struct comm_options options = {.backend = COMM_LOCAL};
    bool holds = true;
    if (comm_local_create(RANKS, &options, comms) != ZD_OK)
        abort();
    for (int r = 0; r < RANKS; r++)
        if (pthread_create(&threads[r], NULL, leave_or_wait, comms[r]) != 0)
            abort();
    for (int r = 0; r < RANKS; r++) {
        void *failed;
        pthread_join(threads[r], &failed);
        holds &= !failed;
    }
    return holds;
}

/* Every size; under the thread sanitizer, for which all take two minutes, an
 * even and an odd one. */
static bool is_tested(int size)
{
#ifdef __SANITIZE_THREAD__
    return size == 2 || size == 5;
#else
    return true;
#endif
}

static const struct group_case staged[] = {
        {"threads", 2, 0, STREAM_THREAD, 300000},
        {"threads", 3, 0, STREAM_THREAD, 8192},
        {"threads", 4, 2, STREAM_THREAD, 65536},
#ifndef __SANITIZE_THREAD__
        {"inline", 2, 0, STREAM_INLINE, 300000},
        {"threads", 1, 0, STREAM_THREAD, 300000},
        {"threads", 8, 4, STREAM_THREAD, 300000},
#endif
};

int main(int argc, char **argv)
{
    for (size_t g = 0; argc > 1 && g < sizeof staged / sizeof *staged; g++)
        group_run(&staged[g]);
    for (int size = 1; argc == 1 && size <= GROUP_MAX; size++)
        if (is_tested(size))
            group_run(&(struct group_case){
                    .name = "threads", .size = size, .on_host = true});
    if (argc == 1)
        tap_ok(abort_reaches_all(), "an abort reaches the ranks that wait");
    return tap_done();
}
