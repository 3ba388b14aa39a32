/* test_predict.c - what overlaps in a predicted step, and what a change of the
 * machine or the job does to its time. */
#include "train/plan/models.h"
#include "train/plan/predict.h"

#include "plan_job.h"

#include <criterion/criterion.h>

#include <math.h>

struct asked {
    int world, stage, accumulation;
    bool waits; /* zero.overlap_comm = false */
    enum offload_tier optimizer;
    bool params_on_host;
    enum offload_clipping clipping;
    uint64_t undo_memory; /* 0: auto */
    double device_update;
    enum device_backend backend;
    bool adapts;
    enum lora_base base;
    bool inputs_on_host; /* of layers, which are computed again */
    int samples;         /* of a micro-batch; 0: two */
    enum checkpointing_mode mode;
};

static struct train_job job_of(const struct asked *asked)
{
    struct train_job job = plan_job(256, 768, 12, 128);
    job.device.backend = asked->backend;
    job.train.per_device_train_batch_size = asked->samples ? asked->samples : 2;
    job.train.gradient_accumulation_steps =
            asked->accumulation ? asked->accumulation : 1;
    job.train.max_steps = 1000;
    job.train.gradient_checkpointing.mode =
            asked->inputs_on_host ? CHECKPOINTING_FULL : asked->mode;
    job.zero.stage = asked->stage;
    job.zero.overlap_comm = !asked->waits;
    job.offload.optimizer = asked->optimizer;
    job.offload.params = asked->params_on_host ? OFFLOAD_CPU : OFFLOAD_NONE;
    job.offload.clipping = asked->clipping;
    if (asked->undo_memory)
        job.offload.undo_memory = asked->undo_memory;
    job.offload.device_update = asked->device_update;
    job.offload.activations =
            asked->inputs_on_host ? OFFLOAD_CPU : OFFLOAD_NONE;
    job.lora.enabled = asked->adapts;
    job.lora.quantize_base = asked->base;
    return job;
}

/* The job's configuration is freed. */
static struct job_plan plan_of(struct train_job job, int world)
{
    struct job_plan plan;
    cr_assert_eq(
            job_plan_build(&job, world, 0, NULL, &plan), ZD_OK, "%s",
            zd_error_get()->what);
    json_decref(job.model.config);
    return plan;
}

static struct plan_prediction predict_job(
        struct train_job job, int world, const struct plan_machine *machine)
{
    struct job_plan plan = plan_of(job, world);
    struct plan_prediction predicted = plan_predict(&plan, machine);
    job_plan_fini(&plan);
    return predicted;
}

static struct plan_prediction predict(
        const struct asked *asked, const struct plan_machine *machine)
{
    return predict_job(job_of(asked), asked->world, machine);
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

Test(predict, gathers_of_stages_1_and_2_overlap_the_next_forward)
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
Test(predict, gathers_and_reductions_of_stage_3_overlap_both_passes)
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

Test(predict, the_slowest_of_many_ranks_sets_the_pace)
{
    struct plan_machine even = *plan_machine_find("h100"), uneven = even;
    even.jitter = 0;
    uneven.jitter = 0.01;
    for (int doublings = 3; doublings <= 7; doublings += 4) {
        struct asked asked = {.world = 1 << doublings, .stage = 3};
        cr_expect_float_eq(
                predict(&asked, &uneven).busy[PLAN_COMPUTE] /
                        predict(&asked, &even).busy[PLAN_COMPUTE],
                1 + 0.01 * doublings, 1e-6);
    }
}

Test(predict, a_wire_that_is_too_slow_to_hide_binds)
{
    struct asked asked = {.world = 8, .stage = 2};
    struct plan_machine machine = with_wire(&asked, 5);
    struct plan_prediction predicted = predict(&asked, &machine);
    cr_expect_eq(predicted.binds, PLAN_WIRE);
    cr_expect_geq(predicted.step_seconds, predicted.busy[PLAN_WIRE]);
}

Test(predict, a_quantized_base_is_decoded_for_each_matmul_and_gathers_less)
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

Test(predict, the_parts_add_up_to_the_step)
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
                double sum = 0;
                for (int p = 0; p < PLAN_PARTS; p++)
                    sum += predicted.parts[p];
                cr_expect_float_eq(
                        sum, predicted.step_seconds,
                        1e-9 * predicted.step_seconds);
            }
}

/* Updates on the host that take as long as compute, which hide beside the next
 * forward pass and with undo beside backward. An input of a layer, which is
 * there, does not wait for parameters that the host updates meanwhile. */
Test(predict, updates_on_the_host_overlap_forward_and_with_undo_backward)
{
    for (int inputs = 0; inputs < 2; inputs++) {
        struct asked asked = {
                .world = 1,
                .optimizer = OFFLOAD_CPU,
                .backend = DEVICE_CUDA,
                .inputs_on_host = inputs};
        struct plan_machine machine = *plan_machine_find("h100");
        machine.link *= 1e3;
        struct plan_prediction quick = predict(&asked, &machine);
        double compute = quick.busy[PLAN_COMPUTE];
        machine.host[0] *= quick.busy[PLAN_HOST] / compute;
        machine.host[1] = 1e18; /* copies cost nothing */
        struct plan_prediction waits = predict(&asked, &machine);
        asked.clipping = OFFLOAD_CLIP_UNDO;
        struct plan_prediction undoes = predict(&asked, &machine);
        if (!inputs)
            cr_expect_lt(waits.step_seconds, 1.95 * compute);
        else
            cr_expect_lt(
                    undoes.parts[PLAN_BACKWARD],
                    1.01 * waits.parts[PLAN_BACKWARD]);
        cr_expect_lt(undoes.step_seconds, waits.step_seconds - 0.25 * compute);
        cr_expect_lt(
                undoes.exposed[EXPOSED_UPDATE],
                0.6 * waits.exposed[EXPOSED_UPDATE]);
    }
}

static double exposed_sum(const struct plan_prediction *predicted)
{
    double sum = 0;
    for (int e = 0; e < PLAN_EXPOSED; e++)
        sum += predicted->exposed[e];
    return sum;
}

/* On a GPU a step is what computes, in which launches are, and what stands
 * still. An update of which nothing may be undone is one that waits. */
Test(predict, a_step_computes_or_is_exposed)
{
    static const uint64_t memory[] = {1, 20000000, 60000000, 0};
    struct plan_prediction waits = {0};
    for (int k = 0; k < 10; k++) {
        struct asked asked = {
                .world = k < 6 ? 1 : 2,
                .stage = k < 6 ? 0 : 1 + k % 3,
                .accumulation = 1 + k / 4,
                .optimizer = OFFLOAD_CPU,
                .backend = DEVICE_CUDA,
                .clipping = k ? OFFLOAD_CLIP_UNDO : OFFLOAD_CLIP_WAIT,
                .undo_memory = k ? memory[(k - 1) % 4] : 0};
        struct plan_machine machine = *plan_machine_find("h100");
        machine.host[0] /= 4;
        machine.host[1] = 1e18; /* copies cost nothing */
        machine.jitter = 0;
        struct plan_prediction now = predict(&asked, &machine);
        cr_expect_float_eq(
                now.busy[PLAN_COMPUTE] + exposed_sum(&now) -
                        now.exposed[EXPOSED_LAUNCHES],
                now.step_seconds, 1e-6 * now.step_seconds, "%d", k);
        cr_expect_lt(now.exposed[EXPOSED_LAUNCHES], now.busy[PLAN_COMPUTE]);
        if (k == 0)
            waits = now;
        if (k == 1)
            cr_expect_eq(now.step_seconds, waits.step_seconds);
        if (k == 2 || k == 3)
            cr_expect_lt(
                    now.exposed[EXPOSED_UPDATE], waits.exposed[EXPOSED_UPDATE]);
    }
}

/* Up to where the link is the slower of both, and where the host's memory moves
 * more than its workers update. */
Test(predict, what_the_device_updates_the_host_does_not)
{
    struct asked asked = {
            .world = 1, .optimizer = OFFLOAD_CPU, .backend = DEVICE_CUDA};
    struct plan_machine machine = *plan_machine_find("h100");
    for (int kind = 0; kind < PLAN_UPDATES; kind++)
        machine.host[kind] /= 4;
    machine.jitter = 0;
    double moves = predict(&asked, &machine).busy[PLAN_HOST];
    machine.host[1] = 1e18;
    struct plan_prediction before = predict(&asked, &machine);
    double host = before.busy[PLAN_HOST];
    for (int k = 1; k <= 4; k++) {
        asked.device_update = 0.25 * k;
        struct plan_prediction now = predict(&asked, &machine);
        cr_expect_float_eq(
                now.busy[PLAN_HOST], (1 - 0.25 * k) * host, 1e-6 * host);
        /* of 28 bytes and 2 that go up: all but the parameter, both times */
        machine.host[1] = machine.host[0];
        double moved = predict(&asked, &machine).busy[PLAN_HOST];
        cr_expect_float_eq(moved, (1 - k / 30.0) * moves, 0.005 * moves);
        machine.host[1] = 1e18;
        cr_expect_gt(now.busy[PLAN_UP], before.busy[PLAN_UP]);
        cr_expect_float_eq(
                now.busy[PLAN_COMPUTE] + exposed_sum(&now) -
                        now.exposed[EXPOSED_LAUNCHES],
                now.step_seconds, 1e-6 * now.step_seconds);
        if (k < 4)
            cr_expect_lt(now.step_seconds, before.step_seconds);
        before = now;
    }
    machine.link /= 100;
    double carried = predict(&asked, &machine).step_seconds;
    asked.device_update = 0;
    cr_expect_lt(predict(&asked, &machine).step_seconds, carried);
}

/* Masters and states of 12 bytes and a gradient, past the cache. */
static double old_values(const struct asked *asked)
{
    struct job_plan plan = plan_of(job_of(asked), 1);
    double bytes = (12 + (double)dtype_bytes(plan.zero.grad_dtype)) *
                   (double)plan.zero.trainable_count;
    job_plan_fini(&plan);
    return bytes;
}

Test(predict, undo_costs_the_bytes_of_old_values_on_the_cpu)
{
    struct asked asked = {.world = 1, .optimizer = OFFLOAD_CPU};
    const struct plan_machine *machine = plan_machine_find("cpu");
    double waits = predict(&asked, machine).step_seconds;
    asked.clipping = OFFLOAD_CLIP_UNDO;
    double undoes = predict(&asked, machine).step_seconds;
    cr_expect_float_eq(
            undoes - waits, 2 * old_values(&asked) / machine->memory,
            0.02 * (undoes - waits));
}

/* Its embedding of 1000 x 256 and 25 norms, 28 bytes an element. */
Test(predict, what_stays_in_fp32_is_updated_at_the_rate_of_fp32)
{
    for (int tier = 0; tier < 2; tier++) {
        struct asked asked = {
                .world = 1, .optimizer = tier ? OFFLOAD_CPU : OFFLOAD_NONE};
        struct train_job job = job_of(&asked), again = job_of(&asked);
        struct plan_machine machine = *plan_machine_find("cpu");
        double *fp32 = tier ? &machine.host[0] : &machine.update[0];
        job.optim.state_type = again.optim.state_type = OPTIM_STATE_8BIT;
        double slow = predict_job(job, 1, &machine).step_seconds;
        double seconds = (1000 + 25) * 256 * 28 / *fp32;
        *fp32 = 1e30;
        double fast = predict_job(again, 1, &machine).step_seconds;
        cr_expect_float_eq(slow - fast, seconds, 0.01 * seconds);
    }
}

/* Its memory moves bytes as fast as the kind of update that computes least. */
Test(predict, copies_on_the_host_of_a_gpu_cost_its_memory)
{
    for (int params = 0; params < 2; params++) {
        struct asked asked = {
                .world = 1,
                .optimizer = OFFLOAD_CPU,
                .backend = DEVICE_CUDA,
                .params_on_host = params};
        struct plan_machine machine = *plan_machine_find("h100");
        for (int kind = 0; kind < PLAN_UPDATES; kind++)
            machine.host[kind] /= 4;
        machine.jitter = 0;
        machine.host[1] = 1e18;
        struct plan_prediction free = predict(&asked, &machine);
        machine.host[1] = machine.host[0];
        struct plan_prediction waits = predict(&asked, &machine);
        /* parameters go up in 16 bits */
        double up = old_values(&asked) / 7;
        double sent = waits.busy[PLAN_HOST] - free.busy[PLAN_HOST];
        cr_expect_float_eq(sent, up / machine.host[1], 1e-3 * sent);
        cr_expect_gt(waits.step_seconds, free.step_seconds + 0.5 * sent);
        asked.clipping = OFFLOAD_CLIP_UNDO;
        struct plan_prediction undoes = predict(&asked, &machine);
        double kept = undoes.busy[PLAN_HOST] - waits.busy[PLAN_HOST];
        cr_expect_float_eq(
                kept, old_values(&asked) / machine.host[1], 1e-3 * kept);
    }
}

/* Matmuls of so many FLOP/s, of `half` rows half as many; all else but memory
 * is free. */
static struct plan_machine with_matmuls(double rate, double half)
{
    struct plan_machine machine = *plan_machine_find("cpu");
    machine.products[0] = machine.products[1] = rate;
    machine.half[0] = machine.half[1] = half;
    machine.launch = 0;
    machine.is_measured = true;
    return machine;
}

/* For a token; attention too. */
enum {
    IN_WEIGHTS = 12 * (4 * 256 * 256 + 3 * 256 * 768),
    IN_ATTENTION = 12 * 128 * 256,
    IN_HEAD = 256 * 1000
};

static double passes_of(
        const struct asked *asked, const struct plan_machine *machine)
{
    struct plan_prediction predicted = predict(asked, machine);
    return predicted.parts[PLAN_FORWARD] + predicted.parts[PLAN_BACKWARD];
}

Test(predict,
     no_matmul_is_faster_than_its_weight_is_read_and_its_gradient_written)
{
    struct asked one = {.world = 1, .samples = 1}, two = {.world = 1};
    struct plan_machine machine = with_matmuls(1e30, 0);
    double bytes = (2 + 2 + 4) * (double)(IN_WEIGHTS + IN_HEAD);
    /* without what grows with the samples */
    double seconds = 2 * passes_of(&one, &machine) - passes_of(&two, &machine);
    double share = seconds * machine.memory / bytes;
    cr_expect(share > 1 && share < 1.1, "%.3g", share);
}

Test(predict, the_passes_of_a_step_are_their_matmuls)
{
    /* whatever the rows, half of them take as long */
    const double many = 1e15, once = 2e-9, head = once * IN_HEAD,
                 layers = once * (IN_WEIGHTS + IN_ATTENTION),
                 down = once * 256 * 768;
    const struct {
        struct asked asked;
        double seconds;
    } cases[] = {
            {{.world = 1}, 3 * (layers + head)},
            /* the head in pieces: 1024 tokens are twice 512 */
            {{.world = 1, .samples = 8}, 3 * (layers + 2 * head)},
            /* backward reads no output of the last layer of a segment */
            {{.world = 1, .mode = CHECKPOINTING_FULL},
             4 * layers + 3 * head - 12 * down},
            {{.world = 1, .mode = CHECKPOINTING_SQRT}, /* four segments */
             4 * layers + 3 * head - 4 * down}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan_machine machine = with_matmuls(1e9 * many, many);
        machine.memory = 1e30;
        cr_expect_float_eq(
                passes_of(&cases[i].asked, &machine), cases[i].seconds,
                1e-6 * cases[i].seconds, "case %zu", i);
    }
}

/* A window of w of T tokens is w (2 - w / T) / T of
 * the work of all of them, where it is in two of three layers. */
Test(predict, a_window_takes_the_time_of_the_tokens_in_it)
{
    double seconds[2];
    for (int windows = 0; windows < 2; windows++) {
        struct asked asked = {.world = 1};
        struct plan_machine machine = with_matmuls(1e9, 0);
        machine.memory = 1e30;
        struct train_job job = job_of(&asked);
        json_object_update_new(
                job.model.config,
                json_pack(
                        "{s:s, s:i, s:b, s:i, s:i}", "model_type", "qwen2",
                        "num_key_value_heads", 4, "use_sliding_window", windows,
                        "sliding_window", 32, "max_window_layers", 4));
        struct plan_prediction predicted = predict_job(job, 1, &machine);
        seconds[windows] =
                predicted.parts[PLAN_FORWARD] + predicted.parts[PLAN_BACKWARD];
    }
    double all = 3 * 2.0 * IN_ATTENTION * 256 / 1e9;
    double share = 32 * (2 - 32 / 128.0) / 128;
    cr_expect_float_eq(
            seconds[0] - seconds[1], 8 / 12.0 * (1 - share) * all, 1e-6 * all);
}

Test(models, have_the_parameters_that_the_table_says)
{
    const struct plan_model *known;
    for (int i = 0; (known = plan_model_at(i)); i++) {
        struct train_job job = plan_job(256, 768, 12, 128);
        json_decref(job.model.config);
        job.model.config = plan_model_config(known);
        job.device.memory_limit = job.device.host_memory_limit = 1ULL << 50;
        struct job_plan plan = plan_of(job, 1);
        cr_expect_eq(
                plan.table.total, (size_t)known->parameters, "%s: %zu",
                known->name, plan.table.total);
        cr_expect(
                !i || known->parameters < plan_model_at(i - 1)->parameters,
                "%s: the largest are first", known->name);
        job_plan_fini(&plan);
    }
}

Test(predict, nothing_overlaps_on_the_cpu)
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
        if (i > 1)
            cr_expect_float_eq(
                    seconds[i] - seconds[i - 1], seconds[1] - seconds[0],
                    1e-9 * seconds[0]);
    }
}
