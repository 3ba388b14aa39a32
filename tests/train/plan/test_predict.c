/* test_predict.c - what overlaps in a predicted step, and what a change of the
 * machine or the job does to its time. */
#include "train/plan/advice.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

struct asked {
    int world, stage, accumulation;
    bool waits; /* zero.overlap_comm = false */
    enum offload_tier optimizer;
    enum offload_clipping clipping;
    enum device_backend backend;
    bool adapts;
    enum lora_base base;
    bool inputs_on_host; /* of layers, which are computed again */
    int samples;         /* of a micro-batch; 0: two */
    enum checkpointing_mode mode;
};

static struct train_job job_of(const struct asked *asked)
{
    struct train_job job = train_job_default();
    job.model.config = json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama",
            "hidden_size", 256, "num_hidden_layers", 12, "num_attention_heads",
            4, "intermediate_size", 768, "vocab_size", 1000,
            "max_position_embeddings", 256, "tie_word_embeddings", 0);
    job.data.cutoff_len = 128;
    job.device.backend = asked->backend;
    job.device.cpu_threads = 1;
    job.train.per_device_train_batch_size = asked->samples ? asked->samples : 2;
    job.train.gradient_accumulation_steps =
            asked->accumulation ? asked->accumulation : 1;
    job.train.max_steps = 1000;
    job.train.gradient_checkpointing.mode = asked->mode;
    job.zero.stage = asked->stage;
    job.zero.overlap_comm = !asked->waits;
    job.offload.optimizer = asked->optimizer;
    job.offload.clipping = asked->clipping;
    if (asked->inputs_on_host) {
        job.train.gradient_checkpointing.mode = CHECKPOINTING_FULL;
        job.offload.activations = OFFLOAD_CPU;
    }
    job.control.socket = CONTROL_NONE;
    job.lora.enabled = asked->adapts;
    job.lora.quantize_base = asked->base;
    return job;
}

static struct plan_prediction predict(
        const struct asked *asked, const struct plan_machine *machine)
{
    struct train_job job = job_of(asked);
    struct job_plan plan;
    cr_assert_eq(
            job_plan_build(&job, asked->world, 0, NULL, &plan), ZD_OK, "%s",
            zd_error_get()->what);
    struct plan_prediction predicted = plan_predict(&plan, machine);
    job_plan_fini(&plan);
    json_decref(job.model.config);
    return predicted;
}

/* The wire takes `share` of what compute does. */
static struct plan_machine with_wire(const struct asked *asked, double share)
{
    struct plan_machine machine = *plan_machine_find("h100");
    machine.latency = 0;
    struct plan_prediction free = predict(asked, &machine);
    machine.inside *= free.busy[PLAN_WIRE] / free.busy[PLAN_COMPUTE] / share;
    return machine;
}

static double sum_of(const struct plan_prediction *predicted)
{
    double sum = 0;
    for (int p = 0; p < PLAN_PARTS; p++)
        sum += predicted->parts[p];
    return sum;
}

Test(predict, the_gathers_of_stages_1_and_2_go_on_beside_the_next_forward)
{
    for (int stage = 1; stage <= 2; stage++) {
        struct asked asked = {.world = 8, .stage = stage};
        struct plan_machine machine = with_wire(&asked, 0.3);
        struct plan_prediction hidden = predict(&asked, &machine);
        asked.waits = true;
        struct plan_prediction waited = predict(&asked, &machine);
        double wire = waited.busy[PLAN_WIRE],
               compute = waited.busy[PLAN_COMPUTE];
        cr_expect_lt(
                hidden.step_seconds, compute + 0.2 * wire,
                "stage %d: %.3g s, compute %.3g, wire %.3g", stage,
                hidden.step_seconds, compute, wire);
        cr_expect_eq(hidden.parts[PLAN_GATHER], 0);
        cr_expect_gt(waited.parts[PLAN_GATHER], 0.3 * wire);
    }
}

/* The first gather, and the last reductions, have nothing beside them. */
Test(predict, the_gathers_and_reductions_of_stage_3_go_on_beside_both_passes)
{
    struct asked asked = {.world = 8, .stage = 3};
    struct plan_machine machine = with_wire(&asked, 0.6);
    struct plan_prediction hidden = predict(&asked, &machine);
    double wire = hidden.busy[PLAN_WIRE], compute = hidden.busy[PLAN_COMPUTE];
    cr_expect_lt(
            hidden.step_seconds, compute + 0.3 * wire,
            "%.3g s, compute %.3g, wire %.3g", hidden.step_seconds, compute,
            wire);
    asked.waits = true;
    struct plan_prediction waited = predict(&asked, &machine);
    cr_expect_gt(waited.step_seconds, compute + 0.9 * wire);
}

Test(predict, all_wait_for_the_slowest_of_many_ranks)
{
    struct asked few = {.world = 8, .stage = 3},
                 many = {.world = 128, .stage = 3};
    struct plan_machine machine = *plan_machine_find("h100");
    double even[2], uneven[2];
    for (int i = 0; i < 2; i++) {
        machine.jitter = 0.01 * i;
        (i ? uneven : even)[0] = predict(&few, &machine).busy[PLAN_COMPUTE];
        (i ? uneven : even)[1] = predict(&many, &machine).busy[PLAN_COMPUTE];
    }
    cr_expect_float_eq(uneven[0] / even[0], 1.03, 1e-6);
    cr_expect_float_eq(uneven[1] / even[1], 1.07, 1e-6);
}

Test(predict, a_wire_that_is_too_slow_to_hide_binds)
{
    struct asked asked = {.world = 8, .stage = 2};
    struct plan_machine machine = with_wire(&asked, 5);
    struct plan_prediction predicted = predict(&asked, &machine);
    cr_expect_eq(predicted.binds, PLAN_WIRE);
    cr_expect_geq(predicted.step_seconds, predicted.busy[PLAN_WIRE]);
}

Test(predict, a_base_in_codes_is_decoded_for_each_product_and_gathers_less)
{
    struct asked asked = {.world = 8, .stage = 3, .adapts = true};
    struct plan_machine machine = *plan_machine_find("h100");
    machine.jitter = 0;
    struct plan_prediction plain = predict(&asked, &machine);
    asked.base = LORA_BASE_NF4;
    struct plan_prediction codes = predict(&asked, &machine);
    /* twelve layers of 4 C^2 and 3 C F elements: half a byte and two each */
    double bytes = 12 * 2.5 * (4 * 256.0 * 256 + 3 * 256.0 * 768);
    double decoding = codes.busy[PLAN_COMPUTE] - plain.busy[PLAN_COMPUTE];
    cr_expect(fabs(decoding - 2 * bytes / machine.memory) <= 1e-3 * decoding);
    cr_expect_lt(codes.busy[PLAN_WIRE], plain.busy[PLAN_WIRE]);
}

Test(predict, the_parts_of_a_step_are_the_step)
{
    for (int world = 1; world <= 4; world *= 2)
        for (int stage = 0; stage <= 3; stage++)
            for (int tier = 0; tier < 2; tier++) {
                struct asked asked = {
                        .world = world,
                        .stage = stage,
                        .accumulation = 1 + 4 * tier,
                        .optimizer = tier ? OFFLOAD_CPU : OFFLOAD_NONE};
                struct plan_prediction predicted =
                        predict(&asked, plan_machine_find("cpu"));
                cr_expect_float_eq(
                        sum_of(&predicted), predicted.step_seconds,
                        1e-9 * predicted.step_seconds);
            }
}

Test(predict, updates_on_the_host_hide_behind_forward_and_with_undo_backward)
{
    struct asked asked = {
            .world = 1, .optimizer = OFFLOAD_CPU, .backend = DEVICE_CUDA};
    struct plan_machine machine = *plan_machine_find("h100");
    struct plan_prediction quick = predict(&asked, &machine);
    double compute = quick.busy[PLAN_COMPUTE];
    machine.link *= 1e3;
    machine.host *= quick.busy[PLAN_HOST] / compute; /* as long as compute */
    struct plan_prediction waits = predict(&asked, &machine);
    asked.clipping = OFFLOAD_CLIP_UNDO;
    struct plan_prediction undoes = predict(&asked, &machine);
    cr_expect_lt(waits.step_seconds, 1.95 * compute);
    cr_expect_lt(undoes.step_seconds, waits.step_seconds - 0.3 * compute);
}

/* Masters and states of 12 bytes and a gradient, written behind a read. */
Test(predict, old_values_that_are_kept_cost_their_bytes_where_all_compute)
{
    struct asked asked = {.world = 1, .optimizer = OFFLOAD_CPU};
    const struct plan_machine *machine = plan_machine_find("cpu");
    struct train_job job = job_of(&asked);
    struct job_plan plan;
    cr_assert_eq(job_plan_build(&job, 1, 0, NULL, &plan), ZD_OK);
    double bytes = 2 * (12 + (double)dtype_bytes(plan.zero.grad_dtype)) *
                   (double)plan.zero.trainable_count;
    job_plan_fini(&plan);
    json_decref(job.model.config);
    double waits = predict(&asked, machine).step_seconds;
    asked.clipping = OFFLOAD_CLIP_UNDO;
    double undoes = predict(&asked, machine).step_seconds;
    cr_expect_float_eq(
            undoes - waits, bytes / machine->memory, 0.02 * (undoes - waits));
}

/* An input of a layer, which is there, does not wait for parameters that the
 * host updates meanwhile. */
Test(predict, what_is_ready_goes_up_before_what_is_not)
{
    struct asked asked = {
            .world = 1,
            .optimizer = OFFLOAD_CPU,
            .backend = DEVICE_CUDA,
            .inputs_on_host = true};
    struct plan_machine machine = *plan_machine_find("h100");
    machine.link *= 1e3;
    struct plan_prediction quick = predict(&asked, &machine);
    machine.host *= quick.busy[PLAN_HOST] / quick.busy[PLAN_COMPUTE];
    struct plan_prediction waits = predict(&asked, &machine);
    asked.clipping = OFFLOAD_CLIP_UNDO;
    struct plan_prediction undoes = predict(&asked, &machine);
    cr_expect_lt(
            undoes.parts[PLAN_BACKWARD], 1.01 * waits.parts[PLAN_BACKWARD]);
    cr_expect_lt(
            undoes.step_seconds,
            waits.step_seconds - 0.3 * quick.busy[PLAN_COMPUTE]);
}

/* Rates of products that grow as `rows` do, all else free. */
static struct plan_machine with_products(
        double rate, bool by_rows, struct plan_rates rates[RATE_TYPES])
{
    struct plan_machine machine = *plan_machine_find("cpu");
    memset(rates, 0, RATE_TYPES * sizeof *rates);
    for (int type = 0; type < RATE_TYPES; type++)
        for (int kind = 0; kind < RATE_PRODUCTS; kind++)
            for (int t = 0; t < RATE_TOKENS; t++)
                for (int w = 0; w < RATE_WIDTHS; w++)
                    rates[type].products[kind][t][w] =
                            by_rows ? rate * plan_rate_tokens[t] : rate;
    machine.rates = rates;
    machine.launch = 0;
    return machine;
}

enum { IN_LAYERS = 12 * (4 * 256 * 256 + 3 * 256 * 768), IN_HEAD = 256 * 1000 };

static double passes_of(
        const struct asked *asked, const struct plan_machine *machine)
{
    struct plan_prediction predicted = predict(asked, machine);
    return predicted.parts[PLAN_FORWARD] + predicted.parts[PLAN_BACKWARD];
}

Test(predict,
     no_product_is_faster_than_its_weight_is_read_and_its_gradient_written)
{
    struct plan_rates rates[RATE_TYPES];
    struct asked asked = {.world = 1};
    struct plan_machine machine = with_products(1e30, false, rates);
    double bytes = (2 + 2 + 4) * (double)(IN_LAYERS + IN_HEAD);
    double seconds = passes_of(&asked, &machine) * machine.memory / bytes;
    cr_expect(seconds > 1 && seconds < 1.1, "%.3g", seconds);
}

/* 1024 tokens: twice 512. */
Test(predict, the_heads_products_are_as_fast_as_those_of_its_pieces)
{
    struct plan_rates rates[RATE_TYPES];
    struct asked asked = {.world = 1, .samples = 8};
    struct plan_machine machine = with_products(1e9, true, rates);
    machine.memory = 1e30;
    double seconds = 3 * 2e-9 * (IN_LAYERS + 2.0 * IN_HEAD);
    cr_expect_float_eq(passes_of(&asked, &machine), seconds, 1e-6 * seconds);
}

Test(predict, a_layer_takes_longer_than_its_parts_by_what_was_measured)
{
    struct plan_rates rates[RATE_TYPES];
    struct asked asked = {.world = 1};
    struct plan_machine machine = with_products(1e9, true, rates);
    machine.memory = 1e30;
    double parts = passes_of(&asked, &machine);
    for (int pass = 0; pass < RATE_PASSES; pass++) {
        rates[0].whole[pass] = 1.5;
        rates[0].begin[pass] = 0.25;
    }
    double seconds = parts + 0.5 * 3 * 2e-9 * IN_LAYERS + 2 * 12 * 0.25;
    cr_expect_float_eq(passes_of(&asked, &machine), seconds, 1e-6 * seconds);
}

/* Backward reads no output of the last layer of a segment. */
Test(predict, a_segment_is_recomputed_without_its_last_projection)
{
    struct plan_rates rates[RATE_TYPES];
    struct asked asked = {.world = 1};
    struct plan_machine machine = with_products(1e9, true, rates);
    machine.memory = 1e30;
    const double layers = 2e-9 * IN_LAYERS, down = 2e-9 * 256 * 768;
    double before = passes_of(&asked, &machine);
    asked.mode = CHECKPOINTING_FULL;
    double full = passes_of(&asked, &machine) - before;
    cr_expect_float_eq(full, layers - 12 * down, 1e-6 * full);
    asked.mode = CHECKPOINTING_SQRT; /* four segments of three layers */
    double segments = passes_of(&asked, &machine) - before;
    cr_expect_float_eq(segments, layers - 4 * down, 1e-6 * segments);
}

Test(predict, cores_that_compute_hide_nothing)
{
    struct asked asked = {.world = 2, .stage = 2};
    struct plan_prediction predicted =
            predict(&asked, plan_machine_find("cpu"));
    cr_expect_float_eq(
            predicted.step_seconds,
            predicted.busy[PLAN_COMPUTE] + predicted.busy[PLAN_WIRE],
            1e-6 * predicted.step_seconds);
}

Test(predict, each_micro_batch_beyond_the_third_takes_as_long)
{
    double seconds[4];
    for (int i = 0; i < 4; i++) {
        struct asked asked = {.world = 4, .stage = 3, .accumulation = 4 + i};
        seconds[i] = predict(&asked, plan_machine_find("a100")).step_seconds;
    }
    for (int i = 2; i < 4; i++)
        cr_expect_float_eq(
                seconds[i] - seconds[i - 1], seconds[1] - seconds[0],
                1e-9 * seconds[0]);
}

Test(predict, what_is_told_of_a_job_with_a_price)
{
    struct asked asked = {.world = 8, .stage = 3, .accumulation = 4};
    struct train_job job = job_of(&asked);
    struct job_plan plan;
    struct plan_advice advice;
    const struct plan_machine *machine = plan_machine_find("h100");
    cr_assert_eq(job_plan_build(&job, 8, 0, NULL, &plan), ZD_OK);
    cr_assert_eq(plan_advise(&job, &plan, machine, 0, 2.5, &advice), ZD_OK);
    json_t *json = plan_advice_json(&advice, &plan, machine);
    double step = advice.predicted.step_seconds;
    cr_expect_float_eq(
            json_real_value(json_object_get(json, "money")),
            1000 * step * 8 * 2.5 / 3600, 1e-9);
    cr_expect_float_eq(
            json_real_value(json_object_get(json, "days")), 1000 * step / 86400,
            1e-9);
    cr_expect_lt(advice.eased_seconds, step);
    /* small micro-batches of a small model: fewer of them is what helps */
    cr_expect_gt(advice.changed_seconds, 0);
    cr_expect_lt(advice.changed_seconds, 0.98 * step);
    json_decref(json);
    job_plan_fini(&plan);
    json_decref(job.model.config);
}
