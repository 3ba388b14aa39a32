/* test_admission.c - what is free when a run begins; a forced job takes memory
 * only while there is some. */
#include "base/memory/arena.h"
#include "comm/comm.h"
#include "train/plan/fit.h"

#include <criterion/criterion.h>
#include <pthread.h>

enum { PIECE = 16 << 20 };

static uint64_t have;
static int asked;

static uint64_t free_bytes(void)
{
    asked++;
    have -= have < PIECE ? have : PIECE;
    return have;
}

static enum zd_status touch(size_t bytes, uint64_t free, int local_size)
{
    struct arena_plan plan;
    struct arena arena;
    arena_plan_init(&plan);
    cr_assert_eq(
            arena_plan_add(&plan, "a", ARENA_HOST, SPAN_BUFFERS, bytes), ZD_OK);
    cr_assert_eq(arena_take(&arena, &plan), ZD_OK);
    have = free;
    asked = 0;
    enum zd_status status = plan_touch(&arena, local_size, free_bytes);
    arena_release(&arena);
    arena_plan_fini(&plan);
    zd_error_clear();
    return status;
}

Test(admission,
     a_forced_job_checks_before_each_piece_and_stops_before_memory_ends)
{
    static const struct {
        size_t pieces;
        uint64_t free;
        int local_size, asked;
        enum zd_status status;
    } cases[] = {
            {4, (uint64_t)1 << 40, 1, 4, ZD_OK},
            {8, 5 * PIECE, 1, 4, ZD_ERR_MEMORY}, /* 4, 3, 2 and then 1 */
            {8, 5 * PIECE, 4, 1, ZD_ERR_MEMORY}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect_eq(
                touch(cases[i].pieces * PIECE, cases[i].free,
                      cases[i].local_size),
                cases[i].status);
        cr_expect_eq(asked, cases[i].asked);
    }
}

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
