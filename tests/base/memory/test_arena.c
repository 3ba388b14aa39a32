#include "base/memory/arena.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>

Test(arena, spans_are_aligned_and_contiguous)
{
    struct arena_plan plan;
    arena_plan_init(&plan);
    MUST(arena_plan_add(&plan, "a", ARENA_DEVICE, SPAN_PARAMS, 100));
    MUST(arena_plan_add(&plan, "empty", ARENA_DEVICE, SPAN_GRADS, 0));
    MUST(arena_plan_add(&plan, "b", ARENA_DEVICE, SPAN_PARAMS, 1));
    MUST(arena_plan_add(&plan, "h", ARENA_HOST, SPAN_BUFFERS, 7));
    MUST(arena_plan_add(&plan, "i", ARENA_HOST, SPAN_BUFFERS, 1));
    cr_expect_eq(arena_plan_find(&plan, "a")->offset, 0);
    cr_expect_eq(arena_plan_find(&plan, "empty")->offset, 256);
    cr_expect_eq(arena_plan_find(&plan, "b")->offset, 256);
    cr_expect_eq(arena_plan_find(&plan, "h")->offset, 0);
    cr_expect_eq(arena_plan_find(&plan, "i")->offset, 64);
    cr_expect_eq(plan.bytes[ARENA_DEVICE], 257);
    cr_expect_eq(plan.bytes[ARENA_HOST], 65);
    cr_expect_null(arena_plan_find(&plan, "none"));
    cr_expect_eq(arena_plan_kind_bytes(&plan, ARENA_DEVICE, SPAN_PARAMS), 101);
    arena_plan_fini(&plan);
}

Test(arena, a_repeated_name_is_a_bug)
{
    struct arena_plan plan;
    arena_plan_init(&plan);
    MUST(arena_plan_add(&plan, "a", ARENA_DEVICE, SPAN_PARAMS, 1));
    cr_expect_eq(
            arena_plan_add(&plan, "a", ARENA_HOST, SPAN_PARAMS, 1), ZD_ERR_BUG);
    arena_plan_fini(&plan);
}

Test(arena, a_size_beyond_64_bits_is_refused)
{
    struct arena_plan plan;
    arena_plan_init(&plan);
    MUST(arena_plan_add(&plan, "a", ARENA_DEVICE, SPAN_PARAMS, 64));
    cr_expect_eq(
            arena_plan_add(
                    &plan, "b", ARENA_DEVICE, SPAN_PARAMS, SIZE_MAX - 10),
            ZD_ERR_UNFIT);
    cr_expect_eq(
            plan.bytes[ARENA_DEVICE], 64, "a refused span leaves no trace");
    arena_plan_fini(&plan);
}

Test(arena, takes_what_was_planned_and_gives_clear_memory)
{
    struct arena_plan plan;
    struct arena arena;
    arena_plan_init(&plan);
    for (int i = 0; i < 100; i++) {
        char name[16];
        ZD_PRINT(name, "span%d", i);
        MUST(arena_plan_add(
                &plan, name, ARENA_DEVICE, SPAN_GRADS, (size_t)i * 33));
    }
    MUST(arena_take(&arena, &plan));
    cr_expect_eq(arena.taken_bytes[ARENA_DEVICE], plan.bytes[ARENA_DEVICE]);
    cr_expect_null(arena.base[ARENA_HOST]);
    for (int i = 0; i < 100; i++) {
        char name[16];
        ZD_PRINT(name, "span%d", i);
        unsigned char *span = arena_span(&arena, name);
        cr_assert_eq((uintptr_t)span % ARENA_DEVICE_ALIGN, 0);
        for (int k = 0; k < i * 33; k++) {
            cr_assert_eq(span[k], 0, "a span overlaps an earlier one");
            span[k] = 1;
        }
    }
    arena_release(&arena);
    arena_release(&arena); /* all-zero is legal */
    arena_plan_fini(&plan);
}
