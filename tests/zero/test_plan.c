#include "plan_case.h"

#include "model/files/config.h"
#include "zero/plan_parts.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(zero_plan, .init = plan_setup, .fini = plan_teardown);

/* How often each element of the model lies in the part of some rank. */
static void count_cover(const struct zero_plan *plan, unsigned char **cover)
{
    for (int rank = 0; rank < plan->request.mesh.world; rank++) {
        for (int s = 0; s < plan->segment_count; s++) {
            size_t count = plan->segments[s].part_count;
            size_t part = (size_t)mesh_part(plan->request.mesh, rank);
            size_t begin = part * count;
            struct zero_extent extent = {.id = -1};
            while (zero_extent_next(plan, s, begin, begin + count, &extent)) {
                cr_assert_eq(extent.begin % ZERO_ALIGN, 0);
                cr_assert_eq(
                        plan->places[extent.id].offset + extent.begin,
                        extent.offset);
                for (size_t i = 0; i < extent.count; i++)
                    cover[extent.id][extent.begin + i]++;
            }
        }
    }
}

/* Shards of one group, and of as many as the world is a multiple of. */
Test(zero_plan, parts_cover_every_element_once)
{
    for (int world = 1; world <= 64; world++) {
        for (int stage = 0; stage <= 3; stage++) {
            struct zero_request r = request(stage, world, 1);
            if (world % (stage + 1) == 0)
                replicate(&r, stage + 1);
            const struct zero_plan *plan = build(&r);
            unsigned char *cover[64];
            for (int id = 0; id < fake.table.count; id++)
                cover[id] = calloc(fake.table.params[id].count, 1);
            count_cover(plan, cover);
            for (int id = 0; id < fake.table.count; id++) {
                for (size_t i = 0; i < fake.table.params[id].count; i++)
                    cr_assert_eq(
                            cover[id][i], 1, "world %d tensor %d", world, id);
                free(cover[id]);
            }
        }
    }
}

Test(zero_plan, segments_are_aligned_and_hold_their_tensors_apart)
{
    for (int world = 1; world <= 64; world++) {
        struct zero_request r = request(3, world, 1);
        const struct zero_plan *plan = build(&r);
        ZD_EACH(segment, plan->segments, plan->segment_count) {
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
            const struct zero_place *place = &plan->places[id];
            const struct zero_segment *in = &plan->segments[place->segment];
            cr_assert_eq(place->offset % ZERO_ALIGN, 0);
            cr_assert_eq(in->unit, param->unit);
            cr_assert_eq(in->trainable, param->trainable);
            if (place->segment == segment)
                cr_assert_geq(place->offset, end);
            segment = place->segment;
            end = place->offset + param->count;
            cr_assert_leq(end, in->used);
        }
    }
}

Test(zero_plan, the_wire_of_stages_0_to_2_is_the_papers)
{
    for (int world = 1; world <= 64; world++) {
        for (int n = 1; n <= 4; n += 3) {
            for (int stage = 0; stage <= 2; stage++) {
                struct zero_request r = request(stage, world, n);
                r.reduce_fp32 = world % 2;
                const struct zero_plan *plan = build(&r);
                size_t grad = n > 1 || r.reduce_fp32 ? 4 : 2;
                size_t E = trainable(plan);
                uint64_t scatters = stage == 2 && world > 1 ? (uint64_t)n : 1;
                cr_assert_eq(
                        sent(plan).bytes[COMM_REDUCE_SCATTER],
                        scatters * share(E, world, grad));
                cr_assert_eq(
                        sent(plan).bytes[COMM_ALL_GATHER],
                        share(E, world, stage == 0 ? grad : 2));
                cr_assert_eq(
                        sent(plan).bytes[COMM_ALL_REDUCE],
                        zero_scalar_bytes(world));
            }
        }
    }
}

Test(zero_plan, the_wire_of_stage_3_is_at_most_two_gathers_a_micro_batch)
{
    for (int world = 2; world <= 64; world += 3) {
        for (int n = 1; n <= 4; n += 3) {
            struct zero_request r = request(3, world, n);
            const struct zero_plan *plan = build(&r);
            size_t grad = n == 1 ? 2 : 4;
            uint64_t E = share(all(plan), world, 2);
            cr_assert_eq(
                    sent(plan).bytes[COMM_REDUCE_SCATTER],
                    (uint64_t)n * share(trainable(plan), world, grad));
            cr_assert_leq(
                    sent(plan).bytes[COMM_ALL_GATHER], 2 * (uint64_t)n * E);
            cr_assert_geq(sent(plan).bytes[COMM_ALL_GATHER], E);
        }
    }
}

/* Of a shard, replicas exchange what an all-reduce would; states are cut by
 * all. */
Test(zero_plan, replicas_send_an_all_reduce_of_a_shard)
{
    for (int replicas = 2; replicas <= 4; replicas++)
        for (int shards = 1; shards <= 8; shards += 7)
            for (int variant = 0; variant < 8; variant++) {
                int stage = variant / 2, n = 1 + variant % 2 * 3;
                struct zero_request r = request(stage, replicas * shards, n);
                replicate(&r, replicas);
                const struct zero_plan *plan = build(&r);
                const struct comm_counters *shard =
                        &plan->wire.group[ZERO_SHARD];
                const struct comm_counters *between =
                        &plan->wire.group[ZERO_REPLICATE];
                size_t grad = n > 1 ? 4 : 2, E = trainable(plan);
                size_t one = E / (size_t)shards, many = stage >= 2 ? n : 1;
                cr_expect_eq(
                        shard->bytes[COMM_REDUCE_SCATTER],
                        many * share(E, shards, grad));
                cr_expect_eq(
                        between->bytes[COMM_REDUCE_SCATTER],
                        share(one, replicas, grad));
                cr_expect_eq(
                        between->bytes[COMM_ALL_GATHER],
                        share(one, replicas, stage ? 2 : grad));
                cr_expect_eq(
                        bytes_of(plan, "zero.master"),
                        4 * (stage ? E / (size_t)(shards * replicas) : E));
            }
}

Test(zero_plan, one_rank_sends_nothing_and_gathers_nothing)
{
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, 1, 1);
        const struct zero_plan *plan = build(&r);
        cr_expect_eq(sent(plan).bytes[COMM_REDUCE_SCATTER], 0);
        cr_expect_eq(sent(plan).bytes[COMM_ALL_GATHER], 0);
        cr_expect_eq(sent(plan).bytes[COMM_ALL_REDUCE], 0);
        cr_expect_eq(plan->layer_slots + plan->outer_slots, 0);
    }
}

/* --- memory --------------------------------------------------------------- */

Test(zero_plan, stage_0_in_bf16_takes_the_papers_16_bytes)
{
    struct zero_request r = request(0, 4, 1);
    const struct zero_plan *plan = build(&r);
    size_t sum =
            arena_plan_kind_bytes(spans_of(plan), ARENA_DEVICE, SPAN_PARAMS) +
            arena_plan_kind_bytes(spans_of(plan), ARENA_DEVICE, SPAN_GRADS) +
            arena_plan_kind_bytes(spans_of(plan), ARENA_DEVICE, SPAN_OPTIMIZER);
    /* whole segments are padded to 256 elements, moments to 64 bytes */
    size_t E = trainable(plan), frozen = all(plan) - E;
    cr_expect_leq(sum, 16 * E + 2 * frozen);
    cr_expect_geq(sum, 8 * E + 8 * fake.table.trainable + 2 * frozen);
}

Test(zero_plan, each_stage_cuts_what_it_promises)
{
    enum { N = 4 };
    for (int stage = 0; stage <= 3; stage++) {
        struct zero_request r = request(stage, N, 1);
        const struct zero_plan *plan = build(&r);
        size_t E = trainable(plan);
        size_t states = 4 * E / (stage >= 1 ? N : 1);
        cr_expect_eq(bytes_of(plan, "zero.master"), states);
        cr_expect_leq(bytes_of(plan, "zero.states"), 2 * states);
        cr_expect_geq(
                bytes_of(plan, "zero.states"),
                8 * fake.table.trainable / (stage >= 1 ? N : 1));
        cr_expect_eq(
                bytes_of(plan, "zero.grads"), 2 * E / (stage >= 2 ? N : 1));
        cr_expect_eq(
                bytes_of(plan, "zero.params"), 2 * E / (stage >= 3 ? N : 1));
        cr_expect_eq(bytes_of(plan, "zero.params.slots") > 0, stage == 3);
    }
}

Test(zero_plan, generation_holds_parameters_only)
{
    struct zero_request r = request(3, 4, 1);
    r.train = false;
    r.accumulation = 0;
    const struct zero_plan *plan = build(&r);
    cr_expect_eq(bytes_of(plan, "zero.states"), 0);
    cr_expect_eq(bytes_of(plan, "zero.grads"), 0);
    cr_expect_gt(bytes_of(plan, "zero.params"), 0);
    cr_expect_eq(sent(plan).bytes[COMM_ALL_REDUCE], 0);
    cr_expect_gt(plan->eval_move_count, 0);
}

/* --- gradients ------------------------------------------------------------ */

/* Work buffers in use at a time must lie apart: those of neighbors when
 * reduction overlaps. */
static void check_work(const struct zero_plan *plan)
{
    int under_way = plan->request.options.overlap_comm ? 1 : 0;
    for (int a = 0; a < plan->grad_unit_count; a++) {
        for (int b = a + 1; b < plan->grad_unit_count; b++) {
            int ua = plan->grad_units[a], ub = plan->grad_units[b];
            size_t na = plan_work_count(plan, ua);
            size_t nb = plan_work_count(plan, ub);
            size_t oa = plan->work_offsets[ua], ob = plan->work_offsets[ub];
            cr_assert_leq(oa + na, plan->work_count);
            cr_assert_leq(ob + nb, plan->work_count);
            bool apart = oa + na <= ob || ob + nb <= oa;
            bool together = b - a <= under_way ||
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
            for (int micros = 1; micros <= 2; micros++) {
                struct zero_request r = request(2 + overlap, 3, micros);
                r.options.overlap_comm = overlap;
                const struct zero_plan *plan = build(&r);
                check_work(plan);
            }
        }
        fake_destroy(&fake);
    }
    fake_create(&fake, &shape);
}

/* A layer's matrix leaves its product as it is sent; the other tensors pass
 * through fp32, and so does all that several micro-batches add up. */
Test(zero_plan, gradients_of_products_take_no_fp32_buffer)
{
    for (int stage = 0; stage <= 3; stage++)
        for (int world = 1; world <= 2; world++) {
            struct zero_request r = request(stage, world, 1);
            const struct zero_plan *plan = build(&r);
            bool is_whole = world == 1 || stage < 2;
            size_t all = plan_unit_of(plan, 1).grads, through = 0;
            for (int id = fake.table.unit_first[1];
                 id < fake.table.unit_first[2]; id++)
                if (fake.table.params[id].trainable &&
                    !fake.table.params[id].is_product)
                    through += (fake.table.params[id].count + ZERO_ALIGN - 1) /
                               ZERO_ALIGN * ZERO_ALIGN;
            cr_expect_eq(
                    plan_work_count(plan, 1),
                    (is_whole ? 0 : all / 2) + through);
            cr_expect_eq(zero_rounded_count(plan, 1), through);
            cr_expect_eq(
                    zero_rounded_count(plan, 0), plan_unit_of(plan, 0).grads);
            r.accumulation = 2;
            plan = build(&r);
            cr_expect_eq(plan_work_count(plan, 1), all);
            cr_expect_eq(zero_rounded_count(plan, 1), 0);
        }
}

Test(zero_plan, the_work_buffers_of_many_layers_are_those_of_a_few)
{
    fake_destroy(&fake);
    size_t work[2];
    for (int k = 0; k < 2; k++) {
        struct fake_shape s = {.layers = k ? 40 : 4, .scale = 1};
        fake_create(&fake, &s);
        struct zero_request r = request(2, 4, 1);
        const struct zero_plan *plan = build(&r);
        work[k] = plan->work_count;
        fake_destroy(&fake);
    }
    cr_expect_eq(work[0], work[1]);
    fake_create(&fake, &shape);
}

/* --- projections that one product reads ----------------------------------- */

#define SIZES(type, C, F, H, KV, D)                                            \
    "{\"model_type\":\"" type "\",\"vocab_size\":16,\"num_hidden_layers\":2,"  \
    "\"hidden_size\":" #C ",\"intermediate_size\":" #F                         \
    ",\"num_attention_heads\":" #H ",\"num_key_value_heads\":" #KV             \
    ",\"head_dim\":" #D "}"

static unsigned joined_of(
        const char *text, const char *freeze, int stage, int world)
{
    struct model_config config;
    struct param_table table;
    json_auto_t *json = NULL;
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
    const struct zero_plan *plan = build(&r);
    unsigned joined = zero_joined(plan);
    param_table_fini(&table);
    model_config_fini(&config);
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
                                cases[i].config, cases[i].freeze, stage, world),
                        cases[i].joined, "model %zu, stage %d, %d ranks", i,
                        stage, world);
}
