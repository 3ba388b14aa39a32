#include "offload/engine.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One tensor of a million elements. */
struct sizes {
    struct offload_options options;
    struct optim_options optim;
    size_t counts[1];
    struct offload_extent extent;
    struct offload_request request;
    size_t bytes[OFFLOAD_PARTS];
};

enum { COUNT = 1 << 20 };

static void sizes_init(struct sizes *s, enum optim_state_type type)
{
    memset(s, 0, sizeof *s);
    s->options = offload_options_default();
    s->options.optimizer = OFFLOAD_CPU;
    s->optim = optim_options_default();
    s->optim.state_type = type;
    s->counts[0] = COUNT;
    s->extent = (struct offload_extent){
            .count = COUNT,
            .layout = optim_layout_of(&s->optim, COUNT, false, NULL),
            .decays = true,
    };
    s->request = (struct offload_request){
            .options = &s->options,
            .optim = &s->optim,
            .dtype = DTYPE_BF16,
            .segment_counts = s->counts,
            .segment_count = 1,
            .extents = &s->extent,
            .extent_count = 1,
    };
}

/* Bytes per parameter of all memory but buffers of a fixed size. */
static double per_param(struct sizes *s)
{
    size_t sum = 0;
    cr_assert_eq(offload_measure(&s->request, s->bytes), ZD_OK);
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        if (part != OFFLOAD_STAGING && part != OFFLOAD_RING &&
            part != OFFLOAD_FILE)
            sum += s->bytes[part];
    return (double)sum / COUNT;
}

Test(offload_measure, prices_eight_bytes_and_a_scale_for_each_parameter)
{
    struct sizes s;
    sizes_init(&s, OPTIM_STATE_8BIT);
    cr_assert_eq(per_param(&s), 8.03125);
    cr_assert_eq(s.bytes[OFFLOAD_MASTER], 4 * COUNT);
    cr_assert_eq(s.bytes[OFFLOAD_STATES_8BIT], 2 * COUNT);
    cr_assert_eq(s.bytes[OFFLOAD_SCALES], COUNT / 32);
    cr_assert_eq(s.bytes[OFFLOAD_SLOTS], 2 * COUNT);
    s.request.accumulates = true;
    cr_assert_eq(per_param(&s), 10.03125);
    cr_assert_eq(s.bytes[OFFLOAD_ACCUMULATORS], 4 * COUNT);
    cr_assert_eq(s.bytes[OFFLOAD_STAGING], STAGE_BUFFERS * (4 << 20));
    s.request.params_on_host = true;
    cr_assert_eq(per_param(&s), 12.03125);
}

Test(offload_measure, prices_other_states_masters_and_types)
{
    struct sizes s;
    sizes_init(&s, OPTIM_STATE_FP32);
    cr_assert_eq(per_param(&s), 14);
    s.request.dtype = DTYPE_FP32;
    cr_assert_eq(per_param(&s), 16);
    sizes_init(&s, OPTIM_STATE_BF16);
    cr_assert_eq(per_param(&s), 10);
    s.optim.master = OPTIM_MASTER_NONE;
    cr_assert_eq(per_param(&s), 8);
    sizes_init(&s, OPTIM_STATE_8BIT);
    s.options.clipping = OFFLOAD_CLIP_UNDO;
    cr_assert_eq(per_param(&s), 2 * 8.03125);
}

Test(offload_measure, counts_a_run_in_whole_qblocks)
{
    struct sizes s;
    sizes_init(&s, OPTIM_STATE_8BIT);
    s.extent.count = COUNT - 100;
    cr_assert_eq(per_param(&s), 8.03125);
}

Test(offload_measure, names_its_spans)
{
    struct sizes s;
    struct arena_plan plan;
    sizes_init(&s, OPTIM_STATE_8BIT);
    cr_assert_eq(offload_measure(&s.request, s.bytes), ZD_OK);
    arena_plan_init(&plan);
    cr_assert_eq(offload_plan_spans(s.bytes, &plan), ZD_OK);
    cr_assert_eq(plan.span_count, 4);
    cr_assert_not_null(arena_plan_find(&plan, "offload.master"));
    cr_assert_not_null(arena_plan_find(&plan, "offload.states.8bit"));
    cr_assert_not_null(arena_plan_find(&plan, "offload.states.scales"));
    cr_assert_eq(arena_plan_find(&plan, "offload.slots")->memory, ARENA_PINNED);
    arena_plan_fini(&plan);
}

Test(offload_measure, refuses_to_update_before_the_norm_where_it_cannot)
{
    struct sizes s;
    sizes_init(&s, OPTIM_STATE_FP32);
    s.options.clipping = OFFLOAD_CLIP_UNDO;
    s.optim.name = OPTIM_ADAM_MINI;
    cr_assert_eq(offload_measure(&s.request, s.bytes), ZD_ERR_CONFIG);
    cr_assert_str_eq(zd_error_get()->code, "E0650");
    zd_error_clear();
    s.optim.name = OPTIM_ADAMW;
    s.options.optimizer = OFFLOAD_NVME;
    cr_assert_eq(offload_measure(&s.request, s.bytes), ZD_ERR_CONFIG);
    cr_assert_str_eq(zd_error_get()->code, "E0650");
    zd_error_clear();
    s.options.clipping = OFFLOAD_CLIP_WAIT;
    s.options.optimizer = OFFLOAD_CPU;
    s.options.params = OFFLOAD_NVME;
    cr_assert_eq(offload_measure(&s.request, s.bytes), ZD_ERR_CONFIG);
    cr_assert_str_eq(zd_error_get()->code, "E0651");
}

/* --- memory --------------------------------------------------------------- */

/* An ordinary user: no capability beyond limits. */
static void limit_locked_memory(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    struct {
        uint32_t version;
        int pid;
    } header = {0x20080522, 0};
    uint32_t none[6] = {0};
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    cr_assert_eq(syscall(SYS_capset, &header, none), 0);
}

Test(offload_measure, says_which_limit_of_locked_memory_is_too_low)
{
    struct sizes s;
    sizes_init(&s, OPTIM_STATE_8BIT);
    cr_assert_eq(offload_measure(&s.request, s.bytes), ZD_OK);
    limit_locked_memory(1 << 20);
    cr_assert_eq(offload_check(&s.options, s.bytes, 1), ZD_OK);
    s.options.pin_memory = OFFLOAD_PIN_YES;
    cr_assert_eq(offload_check(&s.options, s.bytes, 1), ZD_ERR_UNFIT);
    cr_assert_str_eq(zd_error_get()->code, "E0652");
    /* 2 MiB of slots and the pages at their ends, in KiB */
    cr_assert_not_null(strstr(zd_error_get()->help, "`ulimit -l 2056`"));
}

struct made {
    struct sizes sizes;
    struct arena_plan plan;
    struct arena arena;
    struct offload *offload;
};

static enum zd_status make(struct made *m)
{
    struct offload_place place = {.worker_threads = 2, .first_cpu = 0};
    arena_plan_init(&m->plan);
    ZD_TRY(offload_measure(&m->sizes.request, m->sizes.bytes));
    ZD_TRY(offload_plan_spans(m->sizes.bytes, &m->plan));
    ZD_TRY(arena_take(&m->arena, &m->plan));
    return offload_create(&m->sizes.request, &m->arena, &place, &m->offload);
}

static void unmake(struct made *m)
{
    offload_destroy(m->offload);
    arena_release(&m->arena);
    arena_plan_fini(&m->plan);
}

Test(offload_measure, tells_when_the_system_refuses_to_lock)
{
    struct made m = {0};
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the address sanitizer's mlock does nothing");
#endif
    sizes_init(&m.sizes, OPTIM_STATE_8BIT);
    m.sizes.options.pin_memory = OFFLOAD_PIN_YES;
    limit_locked_memory(4096);
    cr_assert_eq(make(&m), ZD_ERR_MEMORY);
    cr_assert_str_eq(zd_error_get()->code, "E0653");
    cr_assert_not_null(strstr(zd_error_get()->what, "offload.slots"));
    unmake(&m);
}

/* Pages of a memory that are resident. */
static size_t resident(const struct made *m, enum arena_memory memory)
{
    size_t pages = (m->arena.taken_bytes[memory] + 4095) / 4096, sum = 0;
    unsigned char *map = malloc(pages);
    cr_assert_eq(
            mincore(m->arena.base[memory], m->arena.taken_bytes[memory], map),
            0);
    for (size_t i = 0; i < pages; i++)
        sum += map[i] & 1;
    free(map);
    return sum;
}

static void is_touched(enum offload_clipping clipping)
{
    struct made m = {0};
    sizes_init(&m.sizes, OPTIM_STATE_8BIT);
    m.sizes.options.clipping = clipping;
    cr_assert_eq(make(&m), ZD_OK);
    for (int memory = ARENA_HOST; memory <= ARENA_PINNED; memory++)
        cr_assert_eq(
                resident(&m, (enum arena_memory)memory) * 4096,
                (m.arena.taken_bytes[memory] + 4095) / 4096 * 4096);
    unmake(&m);
}

/* What was planned is used, and its pages are there before the first step. */
Test(offload_measure, touches_all_that_was_planned)
{
    is_touched(OFFLOAD_CLIP_WAIT);
    is_touched(OFFLOAD_CLIP_UNDO);
}
