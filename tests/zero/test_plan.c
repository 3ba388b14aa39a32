#include "fake.h"

#include "zero/plan_parts.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct fake fake;
static struct fake_shape shape = {.layers = 3, .scale = 1, .freeze_every = 5};

static void make(void)
{
    fake_create(&fake, &shape);
}

static void drop(void)
{
    fake_destroy(&fake);
}

TestSuite(zero_plan, .init = make, .fini = drop);

static struct zero_request request(int stage, int world, int accumulation)
{
    struct zero_options options = zero_options_default();
    options.stage = stage;
    return (struct zero_request){
            .config = &fake.config,
            .table = &fake.table,
            .world = world,
            .options = options,
            .dtype = DTYPE_BF16,
            .storage_dtype = DTYPE_BF16,
            .accumulation = accumulation,
            .train = true};
}

static struct zero_plan build(const struct zero_request *r)
{
    struct zero_plan plan;
    cr_assert_eq(zero_plan_build(r, &plan), ZD_OK, "%s", zd_error_get()->what);
    return plan;
}

/* How often each element of the model lies in a shard of some rank. */
static void count_cover(const struct zero_plan *plan, unsigned char **cover)
{
    for (int rank = 0; rank < plan->request.world; rank++) {
        for (int s = 0; s < plan->segment_count; s++) {
            size_t shard = plan->segments[s].shard_count;
            size_t begin = (size_t)rank * shard;
            struct zero_run run = {.id = -1};
            while (zero_run_next(plan, s, begin, begin + shard, &run)) {
                cr_assert_eq(run.begin % ZERO_ALIGN, 0);
                cr_assert_eq(
                        plan->places[run.id].offset + run.begin, run.offset);
                for (size_t i = 0; i < run.count; i++)
                    cover[run.id][run.begin + i]++;
            }
        }
    }
}

Test(zero_plan, shards_cover_every_element_once)
{
    for (int world = 1; world <= 64; world++) {
        for (int stage = 0; stage <= 3; stage++) {
            struct zero_request r = request(stage, world, 1);
            r.options.param_persistence_threshold = world % 2 ? 300 : 0;
            struct zero_plan plan = build(&r);
            unsigned char *cover[64];
            for (int id = 0; id < fake.table.count; id++)
                cover[id] = calloc(fake.table.params[id].count, 1);
            count_cover(&plan, cover);
            for (int id = 0; id < fake.table.count; id++) {
                for (size_t i = 0; i < fake.table.params[id].count; i++)
                    cr_assert_eq(
                            cover[id][i], 1, "world %d tensor %d", world, id);
                free(cover[id]);
            }
            zero_plan_fini(&plan);
        }
    }
}

Test(zero_plan, segments_are_aligned_and_hold_their_tensors_apart)
{
    for (int world = 1; world <= 64; world++) {
        struct zero_request r = request(3, world, 1);
        r.options.param_persistence_threshold = 100;
        struct zero_plan plan = build(&r);
        for (int s = 0; s < plan.segment_count; s++) {
            const struct zero_segment *segment = &plan.segments[s];
            cr_assert_eq(segment->shard_count % ZERO_ALIGN, 0);
            cr_assert_eq(segment->count, (size_t)world * segment->shard_count);
            cr_assert_geq(segment->count, segment->used);
            cr_assert_lt(
                    segment->count - segment->used, (size_t)world * ZERO_ALIGN);
        }
        size_t end = 0;
        int segment = -1;
        for (int id = 0; id < fake.table.count; id++) {
            const struct param *param = &fake.table.params[id];
            const struct zero_place *place = &plan.places[id];
            const struct zero_segment *in = &plan.segments[place->segment];
            cr_assert_eq(place->offset % ZERO_ALIGN, 0);
            cr_assert_eq(in->unit, param->unit);
            cr_assert_eq(in->trainable, param->trainable);
            cr_assert_eq(
                    in->persistent,
                    world > 1 && param->trainable && param->count < 100);
            if (place->segment == segment)
                cr_assert_geq(place->offset, end);
            segment = place->segment;
            end = place->offset + param->count;
            cr_assert_leq(end, in->used);
        }
        zero_plan_fini(&plan);
    }
}

/* Padded elements: all trainable, and all. */
static size_t trainable(const struct zero_plan *plan)
{
    size_t count = 0;
    for (int s = 0; s < plan->segment_count; s++)
        count += plan->segments[s].trainable ? plan->segments[s].count : 0;
    return count;
}

static size_t all(const struct zero_plan *plan)
{
    size_t count = 0;
    for (int s = 0; s < plan->segment_count; s++)
        count += plan->segments[s].count;
    return count;
}

static uint64_t share(size_t count, int world, size_t bytes)
{
    return (uint64_t)count * (uint64_t)(world - 1) / (uint64_t)world * bytes;
}

Test(zero_plan, the_wire_of_stages_0_to_2_is_the_papers)
{
    for (int world = 1; world <= 64; world++) {
        for (int n = 1; n <= 4; n += 3) {
            size_t grad = n == 1 ? 2 : 4;
            for (int stage = 0; stage <= 2; stage++) {
                struct zero_request r = request(stage, world, n);
                struct zero_plan plan = build(&r);
                size_t E = trainable(&plan);
                uint64_t scatters = stage == 2 && world > 1 ? (uint64_t)n : 1;
                cr_assert_eq(
                        plan.wire.reduce_scatter,
                        scatters * share(E, world, grad));
                cr_assert_eq(
                        plan.wire.all_gather,
                        share(E, world, stage == 0 ? grad : 2));
                cr_assert_eq(plan.wire.all_reduce, zero_scalar_bytes(world));
                zero_plan_fini(&plan);
            }
        }
    }
}

Test(zero_plan, the_wire_of_stage_3_is_at_most_two_gathers_a_micro_batch)
{
    for (int world = 2; world <= 64; world += 3) {
        for (int n = 1; n <= 4; n += 3) {
            struct zero_request r = request(3, world, n);
            struct zero_plan plan = build(&r);
            size_t grad = n == 1 ? 2 : 4;
            uint64_t E = share(all(&plan), world, 2);
            cr_assert_eq(
                    plan.wire.reduce_scatter,
                    (uint64_t)n * share(trainable(&plan), world, grad));
            cr_assert_leq(plan.wire.all_gather, 2 * (uint64_t)n * E);
            cr_assert_geq(plan.wire.all_gather, E);
            zero_plan_fini(&plan);
        }
    }
}

Test(zero_plan, one_rank_sends_nothing_and_gathers_nothing)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 1, 1);
        struct zero_plan plan = build(&r);
        cr_expect_eq(plan.wire.reduce_scatter, 0);
        cr_expect_eq(plan.wire.all_gather, 0);
        cr_expect_eq(plan.wire.all_reduce, 0);
        cr_expect_eq(plan.layer_slots + plan.outer_slots, 0);
        zero_plan_fini(&plan);
    }
}

/* --- memory --------------------------------------------------------------- */

static size_t bytes_of(const struct zero_plan *plan, const char *name)
{
    struct arena_plan arena;
    arena_plan_init(&arena);
    cr_assert_eq(zero_plan_spans(plan, &arena), ZD_OK);
    const struct arena_span *span = arena_plan_find(&arena, name);
    size_t bytes = span ? span->bytes : 0;
    arena_plan_fini(&arena);
    return bytes;
}

Test(zero_plan, stage_0_in_bf16_takes_the_papers_16_bytes)
{
    struct zero_request r = request(0, 4, 1);
    struct zero_plan plan = build(&r);
    struct arena_plan arena;
    arena_plan_init(&arena);
    cr_assert_eq(zero_plan_spans(&plan, &arena), ZD_OK);
    size_t sum = arena_plan_kind_bytes(&arena, ARENA_DEVICE, SPAN_PARAMS) +
                 arena_plan_kind_bytes(&arena, ARENA_DEVICE, SPAN_GRADS) +
                 arena_plan_kind_bytes(&arena, ARENA_DEVICE, SPAN_OPTIMIZER);
    /* whole segments are padded to 256 elements, moments to 64 bytes */
    size_t E = trainable(&plan), frozen = all(&plan) - E;
    cr_expect_leq(sum, 16 * E + 2 * frozen);
    cr_expect_geq(sum, 8 * E + 8 * fake.table.trainable + 2 * frozen);
    arena_plan_fini(&arena);
    zero_plan_fini(&plan);
}

Test(zero_plan, each_stage_cuts_what_it_promises)
{
    enum { N = 4 };
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, N, 1);
        struct zero_plan plan = build(&r);
        size_t E = trainable(&plan);
        size_t states = 4 * E / (stage >= 1 ? N : 1);
        cr_expect_eq(bytes_of(&plan, "zero.master"), states);
        cr_expect_leq(bytes_of(&plan, "zero.m"), states);
        cr_expect_geq(
                bytes_of(&plan, "zero.m"),
                4 * fake.table.trainable / (stage >= 1 ? N : 1));
        cr_expect_eq(bytes_of(&plan, "zero.v"), bytes_of(&plan, "zero.m"));
        cr_expect_eq(
                bytes_of(&plan, "zero.grads"), 2 * E / (stage >= 2 ? N : 1));
        cr_expect_eq(
                bytes_of(&plan, "zero.params"), 2 * E / (stage >= 3 ? N : 1));
        cr_expect_eq(bytes_of(&plan, "zero.params.slots") > 0, stage == 3);
        zero_plan_fini(&plan);
    }
}

/* --- states --------------------------------------------------------------- */

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of the lanes of whole tensors in `format`, each from a line on. */
static size_t lane_bytes(const struct zero_plan *plan, enum optim_format format)
{
    size_t bytes = 0;
    for (int id = 0; id < fake.table.count; id++)
        for (int lane = 0; lane < OPTIM_LANES; lane++)
            if (zero_layout_of(plan, id).lane[lane] == format)
                bytes += lines(
                        optim_lane_bytes(format, fake.table.params[id].count));
    return bytes;
}

static size_t states_of(const struct zero_plan *plan)
{
    return bytes_of(plan, "zero.m") + bytes_of(plan, "zero.v") +
           bytes_of(plan, "zero.states.8bit") +
           bytes_of(plan, "zero.states.bf16");
}

Test(zero_plan, one_rank_takes_the_bytes_of_its_formats)
{
    drop();
    shape.scale = 12; /* tensors above and below 4096 elements */
    make();
    for (enum optim_name name = OPTIM_ADAMW; name <= OPTIM_SGD; name++)
        for (enum optim_state_type type = OPTIM_STATE_FP32;
             type <= OPTIM_STATE_8BIT; type++) {
            struct zero_request r = request(3, 1, 1);
            r.optim = optim_options_default();
            r.optim.name = name;
            r.optim.state_type = type;
            struct zero_plan plan = build(&r);
            size_t narrow = bytes_of(&plan, "zero.states.8bit");
            cr_expect_eq(
                    bytes_of(&plan, "zero.m") + bytes_of(&plan, "zero.v"),
                    lane_bytes(&plan, OPTIM_FP32));
            cr_expect_eq(
                    bytes_of(&plan, "zero.states.bf16"),
                    lane_bytes(&plan, OPTIM_BF16));
            cr_expect_eq(narrow, lane_bytes(&plan, OPTIM_8BIT));
            cr_expect_eq(
                    narrow > 0, type == OPTIM_STATE_8BIT && name < OPTIM_SGD);
            cr_expect_geq(bytes_of(&plan, "zero.states.scales"), narrow / 64);
            cr_expect_eq(
                    bytes_of(&plan, "zero.blocks") > 0,
                    name == OPTIM_ADAM_MINI);
            cr_expect_eq(
                    bytes_of(&plan, "zero.blocks.sums"),
                    4 * bytes_of(&plan, "zero.blocks"));
            cr_expect_eq(states_of(&plan) > 0, name != OPTIM_SGD);
            zero_plan_fini(&plan);
        }
    shape.scale = 1;
}

/* A span is that of the rank that needs most: no less than the mean, and the
 * same on every rank, whatever tensors fall to it. */
Test(zero_plan, spans_of_states_hold_any_ranks_part)
{
    drop();
    shape.scale = 12;
    make();
    for (int world = 2; world <= 8; world++) {
        struct zero_request r = request(world % 3 + 1, world, 1);
        r.optim = optim_options_default();
        r.optim.state_type = OPTIM_STATE_8BIT;
        struct zero_plan plan = build(&r);
        size_t codes = 0;
        for (int id = 0; id < fake.table.count; id++)
            if (zero_layout_of(&plan, id).lane[OPTIM_M] == OPTIM_8BIT)
                codes += 2 * fake.table.params[id].count;
        cr_expect_geq(
                bytes_of(&plan, "zero.states.8bit") * (size_t)world, codes);
        cr_expect_lt(bytes_of(&plan, "zero.states.8bit"), codes);
        zero_plan_fini(&plan);
    }
    shape.scale = 1;
}

Test(zero_plan, block_sums_are_on_the_wire_where_states_are_cut)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 3, 1);
        r.optim.name = OPTIM_ADAM_MINI;
        struct zero_plan plan = build(&r);
        cr_assert_gt(plan.block_count, 0);
        cr_expect_eq(
                plan.wire.all_reduce,
                zero_scalar_bytes(3) +
                        (stage ? 2 * 2 * 8 * plan.block_count : 0));
        zero_plan_fini(&plan);
    }
}

Test(zero_plan, without_masters_the_parameters_are_updated)
{
    struct zero_request r = request(1, 4, 1);
    r.optim.master = OPTIM_MASTER_NONE;
    struct zero_plan plan = build(&r);
    cr_expect_eq(bytes_of(&plan, "zero.master"), 0);
    cr_expect_gt(bytes_of(&plan, "zero.m"), 0);
    zero_plan_fini(&plan);
}

Test(zero_plan, fp32_parameters_are_their_own_master)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 3, 1);
        r.dtype = DTYPE_FP32;
        struct zero_plan plan = build(&r);
        cr_expect_eq(bytes_of(&plan, "zero.master"), 0);
        cr_expect_eq(bytes_of(&plan, "zero.master.frozen"), 0);
        cr_expect_eq(bytes_of(&plan, "zero.grads.work") > 0, stage >= 2);
        zero_plan_fini(&plan);
    }
}

Test(zero_plan, frozen_tensors_of_wider_files_keep_a_cut_copy)
{
    struct zero_request r = request(1, 4, 1);
    r.storage_dtype = DTYPE_FP32;
    struct zero_plan plan = build(&r);
    size_t frozen = all(&plan) - trainable(&plan);
    cr_expect_eq(bytes_of(&plan, "zero.master.frozen"), 4 * frozen / 4);
    cr_expect_eq(bytes_of(&plan, "zero.params.frozen"), 2 * frozen);
    zero_plan_fini(&plan);
}

Test(zero_plan, generation_holds_parameters_only)
{
    struct zero_request r = request(3, 4, 1);
    r.train = false;
    r.accumulation = 0;
    struct zero_plan plan = build(&r);
    cr_expect_eq(bytes_of(&plan, "zero.m"), 0);
    cr_expect_eq(bytes_of(&plan, "zero.grads"), 0);
    cr_expect_gt(bytes_of(&plan, "zero.params"), 0);
    cr_expect_eq(plan.wire.all_reduce, 0);
    cr_expect_gt(plan.eval_move_count, 0);
    zero_plan_fini(&plan);
}

/* --- gradients ------------------------------------------------------------ */

/* Units whose work buffers are in use at a time must lie apart: both complete
 * in the same bucket, or in neighbouring ones when reduction overlaps. */
static void check_work(const struct zero_plan *plan)
{
    int under_way = plan->request.options.overlap_comm ? 1 : 0;
    for (int a = 0; a < plan->grad_unit_count; a++) {
        for (int b = a + 1; b < plan->grad_unit_count; b++) {
            int ua = plan->grad_units[a], ub = plan->grad_units[b];
            size_t na = 0, nb = 0;
            for (int s = 0; s < plan->segment_count; s++) {
                const struct zero_segment *segment = &plan->segments[s];
                na += segment->unit == ua && segment->trainable ? segment->count
                                                                : 0;
                nb += segment->unit == ub && segment->trainable ? segment->count
                                                                : 0;
            }
            size_t oa = plan->work_offsets[ua], ob = plan->work_offsets[ub];
            cr_assert_leq(oa + na, plan->work_count);
            cr_assert_leq(ob + nb, plan->work_count);
            bool apart = oa + na <= ob || ob + nb <= oa;
            bool together = plan->grad_buckets[b] - plan->grad_buckets[a] <=
                                    under_way ||
                            (plan->request.config->tied && ub == 0);
            cr_assert(apart || !together, "units %d and %d", ua, ub);
        }
    }
}

Test(zero_plan, work_buffers_in_use_lie_apart)
{
    fake_destroy(&fake);
    for (int tied = 0; tied <= 1; tied++) {
        struct fake_shape s = {.layers = 7, .scale = 2, .tied = tied};
        fake_create(&fake, &s);
        for (int overlap = 0; overlap <= 1; overlap++) {
            static const int64_t buckets[] = {0, 1, 3000, 8000, 1 << 30};
            for (int k = 0; k < 5; k++) {
                struct zero_request r = request(2 + overlap, 3, 1 + k % 2);
                r.options.overlap_comm = overlap;
                r.options.reduce_bucket_size = buckets[k];
                struct zero_plan plan = build(&r);
                check_work(&plan);
                zero_plan_fini(&plan);
            }
        }
        fake_destroy(&fake);
    }
    fake_create(&fake, &shape);
}

Test(zero_plan, the_work_buffers_of_many_layers_are_those_of_a_few)
{
    fake_destroy(&fake);
    size_t work[2];
    for (int k = 0; k < 2; k++) {
        struct fake_shape s = {.layers = k ? 40 : 4, .scale = 1};
        fake_create(&fake, &s);
        struct zero_request r = request(2, 4, 1);
        struct zero_plan plan = build(&r);
        work[k] = plan.work_count;
        zero_plan_fini(&plan);
        fake_destroy(&fake);
    }
    cr_expect_eq(work[0], work[1]);
    fake_create(&fake, &shape);
}

Test(zero_plan, a_stage_that_does_not_exist_is_refused)
{
    struct zero_plan plan;
    struct zero_request r = request(4, 2, 1);
    cr_expect_eq(zero_plan_build(&r, &plan), ZD_ERR_CONFIG);
}

/* --- offload -------------------------------------------------------------- */

static struct zero_request offloaded(int stage, int world, int accumulation)
{
    struct zero_request r = request(stage, world, accumulation);
    r.optim = optim_options_default();
    r.offload = offload_options_default();
    r.offload.optimizer = OFFLOAD_CPU;
    return r;
}

static size_t span_bytes(const struct arena_plan *arena, const char *name)
{
    const struct arena_span *span = arena_plan_find(arena, name);
    return span ? span->bytes : 0;
}

/* Gradients that pass are not kept; masters and states are the engine's. */
Test(zero_plan, offload_leaves_parameters_and_buffers_on_the_device)
{
    for (int world = 1; world <= 4; world++) {
        for (int stage = 0; stage <= 3; stage++) {
            struct zero_request r = offloaded(stage, world, 1);
            struct zero_plan plan = build(&r);
            struct arena_plan arena;
            arena_plan_init(&arena);
            cr_assert_eq(zero_plan_spans(&plan, &arena), ZD_OK);
            bool keeps = stage == 0 && world > 1;
            cr_assert_eq(span_bytes(&arena, "zero.grads") > 0, keeps);
            cr_assert_eq(span_bytes(&arena, "zero.m"), 0);
            cr_assert_eq(span_bytes(&arena, "zero.master"), 0);
            cr_assert_gt(span_bytes(&arena, "zero.params"), 0);
            cr_assert_gt(span_bytes(&arena, "offload.master"), 0);
            cr_assert_eq(
                    span_bytes(&arena, "zero.grads.passing") > 0,
                    world > 1 && stage > 0);
            cr_assert_eq(
                    arena_plan_kind_bytes(&arena, ARENA_DEVICE, SPAN_OPTIMIZER),
                    0);
            arena_plan_fini(&arena);
            zero_plan_fini(&plan);
        }
    }
}

/* Of parameters on the host the device holds slots alone. */
Test(zero_plan, parameters_on_the_host_leave_slots_on_the_device)
{
    for (int world = 1; world <= 4; world++) {
        for (int stage = world > 1 ? 3 : 0; stage <= 3; stage++) {
            struct zero_request r = offloaded(stage, world, 1);
            r.offload.params = OFFLOAD_CPU;
            struct zero_plan plan = build(&r);
            struct arena_plan arena;
            arena_plan_init(&arena);
            cr_assert_eq(zero_plan_spans(&plan, &arena), ZD_OK);
            cr_assert(plan.params_cut);
            cr_assert_eq(plan.layer_slots, 2);
            cr_assert_eq(
                    arena_plan_kind_bytes(&arena, ARENA_DEVICE, SPAN_PARAMS),
                    0);
            cr_assert_gt(span_bytes(&arena, "zero.params.slots"), 0);
            cr_assert_eq(
                    arena_plan_find(&arena, "zero.params.frozen")->memory,
                    ARENA_PINNED);
            arena_plan_fini(&arena);
            zero_plan_fini(&plan);
        }
    }
}

/* Shards of a bucket stay where they are until the bucket after the next one is
 * reduced; two neighbours never share memory. */
Test(zero_plan, passing_shards_of_neighbours_lie_apart)
{
    struct fake_shape deep = {.layers = 9, .scale = 1, .tied = true};
    fake_destroy(&fake);
    fake_create(&fake, &deep);
    for (int variant = 0; variant < 8; variant++) {
        struct zero_request r = offloaded(1 + variant % 3, 2 + variant % 3, 1);
        r.options.reduce_bucket_size = variant & 1 ? 3000 : 0;
        r.options.overlap_comm = variant & 2;
        struct zero_plan plan = build(&r);
        size_t whole = 0;
        for (int i = 0; i < plan.grad_unit_count; i++) {
            int unit = plan.grad_units[i];
            size_t at = plan.passing_offsets[unit];
            size_t count = plan_grad_count(&plan, unit) / (size_t)r.world;
            whole += count;
            cr_assert_leq(at + count, plan.passing_count);
            for (int k = 0; k < i; k++) {
                int other = plan.grad_units[k];
                size_t begin = plan.passing_offsets[other];
                size_t end =
                        begin + plan_grad_count(&plan, other) / (size_t)r.world;
                int apart = plan.grad_buckets[i] - plan.grad_buckets[k];
                if (apart <= (r.options.overlap_comm ? 1 : 0))
                    cr_assert(end <= at || at + count <= begin);
            }
        }
        cr_assert_lt(plan.passing_count, whole);
        zero_plan_fini(&plan);
    }
}

Test(zero_plan, each_micro_batch_that_the_host_adds_is_reduced)
{
    for (int stage = 1; stage <= 3; stage++) {
        struct zero_request r = offloaded(stage, 4, 3);
        r.accumulate_on_host = true;
        struct zero_plan plan = build(&r);
        cr_assert_eq(
                plan.wire.reduce_scatter, 3 * share(trainable(&plan), 4, 4));
        cr_assert_gt(plan.offload_bytes[OFFLOAD_ACCUMULATORS], 0);
        zero_plan_fini(&plan);
        r.accumulate_on_host = false; /* stage 1: only the last one */
        plan = build(&r);
        cr_assert_eq(
                plan.wire.reduce_scatter,
                (stage == 1 ? 1 : 3) * share(trainable(&plan), 4, 4));
        cr_assert_eq(plan.offload_bytes[OFFLOAD_ACCUMULATORS], 0);
        zero_plan_fini(&plan);
    }
}

/* 4 of master, 2 of the slot; 1 each of m and v and two scales per 256, or 8 of
 * small tensors. */
Test(zero_plan, a_parameter_takes_8_03_bytes_of_the_host)
{
    struct fake_shape big = {.layers = 2, .scale = 64};
    fake_destroy(&fake);
    fake_create(&fake, &big);
    struct zero_request r = offloaded(2, 1, 1);
    r.optim.state_type = OPTIM_STATE_8BIT;
    r.optim.stable_embedding = false;
    struct zero_plan plan = build(&r);
    double bytes = 0, want = 0;
    for (int part = 0; part < OFFLOAD_PARTS; part++)
        bytes += (double)plan.offload_bytes[part];
    for (int id = 0; id < fake.table.count; id++) {
        size_t count = fake.table.params[id].count;
        want += (double)count *
                (6 + (count >= OPTIM_8BIT_MIN ? 2 + 8.0 / 256 : 8));
    }
    cr_assert_geq(bytes, want);
    cr_assert_leq(bytes, 1.06 * want, "%g bytes", bytes / want);
    zero_plan_fini(&plan);
}

static void refuses(const struct zero_request *r, const char *code)
{
    struct zero_plan plan;
    cr_assert_eq(zero_plan_build(r, &plan), ZD_ERR_CONFIG);
    cr_assert_str_eq(zd_error_get()->code, code);
    zd_error_clear();
}

Test(zero_plan, offload_that_does_not_go_together_is_refused)
{
    struct zero_request r = offloaded(3, 2, 1);
    r.offload.params = OFFLOAD_CPU;
    r.offload.optimizer = OFFLOAD_NONE;
    refuses(&r, "E0660");
    for (int stage = 0; stage <= 2; stage++) {
        r = offloaded(stage, 2, 1);
        r.offload.params = OFFLOAD_CPU;
        refuses(&r, "E0661");
    }
    r = offloaded(0, 2, 4);
    r.accumulate_on_host = true;
    refuses(&r, "E0662");
}

/* --- projections that one product reads ----------------------------------- */

#define SIZES(type, C, F, H, KV, D)                                            \
    "{\"model_type\":\"" type "\",\"vocab_size\":16,\"num_hidden_layers\":2,"  \
    "\"hidden_size\":" #C ",\"intermediate_size\":" #F                         \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #KV             \
    ",\"head_dim\":" #D "}"

static unsigned joined_of(
        const char *text, const char *freeze, int stage, int world,
        int64_t threshold)
{
    struct model_config config;
    struct param_table table;
    json_t *json;
    cr_assert_eq(
            json_parse(text, strlen(text), "test", ZD_ERR_BUG, &json), ZD_OK);
    cr_assert_eq(
            model_config_parse(json, "test", ZD_ERR_CONFIG, &config), ZD_OK,
            "%s", zd_error_get()->what);
    cr_assert_eq(
            param_table_build(&config, &freeze, freeze != NULL, &table), ZD_OK);
    struct zero_request r = request(stage, world, 1);
    r.config = &config;
    r.table = &table;
    r.options.param_persistence_threshold = threshold;
    struct zero_plan plan = build(&r);
    unsigned joined = zero_joined(&plan);
    zero_plan_fini(&plan);
    param_table_fini(&table);
    model_config_fini(&config);
    json_decref(json);
    return joined;
}

Test(zero_plan, projections_follow_each_other_where_one_product_may_read_them)
{
    enum { BOTH = JOIN_QKV | JOIN_GATE_UP };
    static const struct {
        const char *config, *freeze;
        unsigned joined;
    } cases[] = {
            {SIZES("llama", 2048, 8192, 32, 8, 64), NULL, BOTH},
            {SIZES("llama", 42, 67, 6, 3, 10), NULL, 0},
            {SIZES("qwen2", 1536, 8960, 12, 2, 128), NULL, BOTH},
            {SIZES("qwen2", 896, 4864, 14, 2, 64), NULL, JOIN_GATE_UP},
            {SIZES("qwen3", 1024, 3072, 16, 8, 128), NULL, BOTH},
            {SIZES("llama", 64, 256, 4, 2, 16), "*self_attn*", BOTH},
            {SIZES("llama", 64, 256, 4, 2, 16), "k_proj", JOIN_GATE_UP},
            {SIZES("llama", 64, 256, 4, 2, 16), "*layers.1.*up_proj*",
             JOIN_QKV},
            {"{\"model_type\":\"gpt2\",\"vocab_size\":16,\"n_embd\":64,"
             "\"n_layer\":1,\"n_head\":4,\"n_positions\":8}",
             NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int stage = 0; stage <= 3; stage++)
            for (int world = 1; world <= 3; world += 2)
                cr_expect_eq(
                        joined_of(
                                cases[i].config, cases[i].freeze, stage, world,
                                world == 3 ? 3000 : 0),
                        cases[i].joined, "model %zu, stage %d, %d ranks", i,
                        stage, world);
}
