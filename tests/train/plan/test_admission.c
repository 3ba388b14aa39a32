/* Memory of a forced job is taken only as long as there is some. */
#include "base/memory/arena.h"
#include "comm/comm.h"
#include "train/plan/fit.h"

#include <criterion/criterion.h>

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

Test(admission, of_a_forced_job_asks_before_every_piece)
{
    cr_expect_eq(touch(4 * PIECE, (uint64_t)1 << 40, 1), ZD_OK);
    cr_expect_eq(asked, 4);
}

Test(admission, of_a_forced_job_ends_before_memory_does)
{
    cr_expect_eq(touch(8 * PIECE, 5 * PIECE, 1), ZD_ERR_MEMORY);
    cr_expect_eq(asked, 4); /* 4, 3, 2 and then 1 piece */
    cr_expect_eq(touch(8 * PIECE, 5 * PIECE, 4), ZD_ERR_MEMORY);
    cr_expect_eq(asked, 1);
}

Test(admission, asks_what_is_free)
{
    struct comm *comm;
    struct plan_free free;
    const struct comm_options options = {0};
    cr_assert_eq(comm_local_create(1, &options, &comm), ZD_OK);
    cr_assert_eq(plan_ask_free(comm, 2, &free), ZD_OK);
    cr_expect_lt(free.host, device_system_memory() / 2);
    cr_expect_gt(free.host, 0);
    comm_destroy(comm);
}
