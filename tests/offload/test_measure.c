#include "base/must.h"
#include "offload/engine.h"
#include "tests/offload/small_engine.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

enum { COUNT = 1 << 20 };

static struct small_engine s;
static size_t bytes[OFFLOAD_PARTS];

/* One tensor of a million elements. */
static void sizes_init(enum optim_state_type type)
{
    small_engine_init(&s, 1, COUNT, 0);
    s.optim.state_type = type;
    s.extents[0].layout = optim_layout_of(&s.optim, COUNT, false, NULL);
    s.request.dtype = DTYPE_BF16;
    s.place.first_cpu = 0;
}

/* Bytes per parameter of all memory but buffers of a fixed size. */
static double per_param(void)
{
    size_t sum = 0;
    struct offload_request request = s.request;
    request.undo_first = offload_undo_first(&request);
    offload_measure(&request, bytes);
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        if (part != OFFLOAD_STAGING && part != OFFLOAD_RING &&
            part != OFFLOAD_FILE)
            sum += bytes[part];
    return (double)sum / COUNT;
}

Test(offload_measure, prices_eight_bytes_and_a_scale_for_each_parameter)
{
    sizes_init(OPTIM_STATE_8BIT);
    cr_assert_eq(per_param(), 8.03125);
    cr_assert_eq(bytes[OFFLOAD_STATES], 6 * COUNT + COUNT / 32);
    cr_assert_eq(bytes[OFFLOAD_SLOTS], 2 * COUNT);
    s.request.accumulates = true;
    cr_assert_eq(per_param(), 10.03125);
    cr_assert_eq(bytes[OFFLOAD_ACCUMULATORS], 4 * COUNT);
    cr_assert_eq(bytes[OFFLOAD_STAGING], STAGE_BUFFERS * (4 << 20));
    s.request.params_on_host = true;
    cr_assert_eq(per_param(), 12.03125);
}

Test(offload_measure, prices_other_states_masters_and_types)
{
    sizes_init(OPTIM_STATE_FP32);
    cr_assert_eq(per_param(), 14);
    s.request.dtype = DTYPE_FP32;
    cr_assert_eq(per_param(), 16);
    sizes_init(OPTIM_STATE_BF16);
    cr_assert_eq(per_param(), 10);
    s.optim.master = OPTIM_MASTER_NONE;
    cr_assert_eq(per_param(), 8);
    sizes_init(OPTIM_STATE_8BIT);
    s.options.clipping = OFFLOAD_CLIP_UNDO;
    cr_assert_eq(per_param(), 2 * 8.03125);
}

/* Segments of 256 and 512 elements with fp32 masters, m, v and gradients: 16
 * bytes of each for old values, the last segment's first. */
Test(offload_measure, undoes_whole_segments_from_the_last_one)
{
    static const struct {
        uint64_t memory;
        int first;
        size_t bytes;
    } rows[] = {
            {0, 2, 0},
            {16 * 512 - 1, 2, 0},
            {16 * 512, 1, 16 * 512},
            {16 * 768 - 1, 1, 16 * 512},
            {16 * 768, 0, 16 * 768},
            {OFFLOAD_UNDO_AUTO, 0, 16 * 768},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        small_engine_init(&s, 2, 256, 512);
        s.options.clipping = OFFLOAD_CLIP_UNDO;
        s.options.undo_memory = rows[i].memory;
        s.request.undo_first = offload_undo_first(&s.request);
        cr_expect_eq(s.request.undo_first, rows[i].first);
        offload_measure(&s.request, bytes);
        cr_expect_eq(bytes[OFFLOAD_UNDO], rows[i].bytes);
        s.options.clipping = OFFLOAD_CLIP_WAIT;
        cr_expect_eq(offload_undo_first(&s.request), 2);
    }
}

Test(offload_measure, counts_a_run_in_whole_qblocks)
{
    sizes_init(OPTIM_STATE_8BIT);
    s.extents[0].count = COUNT - 100;
    cr_assert_eq(per_param(), 8.03125);
}

/* --- memory --------------------------------------------------------------- */

/* Pages of a memory that are resident. */
static size_t resident(enum arena_memory memory)
{
    size_t pages = (s.arena.taken_bytes[memory] + 4095) / 4096, sum = 0;
    ZD_FREED unsigned char *map = malloc(pages);
    cr_assert_eq(
            mincore(s.arena.base[memory], s.arena.taken_bytes[memory], map), 0);
    for (size_t i = 0; i < pages; i++)
        sum += map[i] & 1;
    return sum;
}

static void is_touched(enum offload_clipping clipping)
{
    sizes_init(OPTIM_STATE_8BIT);
    s.options.clipping = clipping;
    MUST(small_engine_make(&s));
    for (int memory = ARENA_HOST; memory <= ARENA_PINNED; memory++)
        cr_assert_eq(
                resident((enum arena_memory)memory) * 4096,
                (s.arena.taken_bytes[memory] + 4095) / 4096 * 4096);
    small_engine_end(&s);
}

/* What was planned is used, and its pages are there before the first step. */
Test(offload_measure, touches_all_that_was_planned)
{
    is_touched(OFFLOAD_CLIP_WAIT);
    is_touched(OFFLOAD_CLIP_UNDO);
}
