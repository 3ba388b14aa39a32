/* test_admission.c - what is free when a run begins. */
#include "comm/comm.h"
#include "train/plan/fit.h"

#include <criterion/criterion.h>
#include <pthread.h>

struct asking {
    struct comm *comm;
    int local_size;
    struct plan_free free;
    enum zd_status status;
};

static void *ask(void *ctx)
{
    struct asking *asking = ctx;
    asking->status =
            plan_ask_free(asking->comm, asking->local_size, &asking->free);
    return NULL;
}

/* The second is one of sixteen on its host. */
Test(admission, the_rank_with_the_least_memory_decides_for_all)
{
    struct comm *comms[2];
    struct asking ranks[2] = {{.local_size = 1}, {.local_size = 16}};
    pthread_t threads[2];
    const struct comm_options options = {0};
    cr_assert_eq(comm_local_create(2, &options, comms), ZD_OK);
    for (int r = 0; r < 2; r++) {
        ranks[r].comm = comms[r];
        cr_assert_eq(pthread_create(&threads[r], NULL, ask, &ranks[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(ranks[r].status, ZD_OK);
        cr_expect_lt(ranks[r].free.host, device_system_memory() / 16);
        cr_expect_gt(ranks[r].free.host, 0);
        cr_expect_eq(ranks[r].free.host, ranks[0].free.host);
        comm_destroy(comms[r]);
    }
}
