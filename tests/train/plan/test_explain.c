/* test_explain.c - published tables, by plans alone: what a rank holds of each
 * kind, beside the figure that a paper or an article has for it. */
#include "train/plan/explain.h"
#include "train/plan/models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

struct asked {
    const char *model; /* of models.h; NULL: one of `layers` layers 4096 wide */
    int layers, world, stage;
    enum dtype dtype;
    enum optim_state_type states;
    bool wide_embedding; /* its states stay in 32 bits */
    bool keeps;          /* nothing is computed again */
};

static json_t *config_of(const struct asked *asked)
{
    const struct plan_model *model;
    for (int i = 0; asked->model && (model = plan_model_at(i)); i++)
        if (!strcmp(model->name, asked->model))
            return plan_model_config(model);
    cr_assert(!asked->model, "no model %s", asked->model);
    return json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_embd",
            4096, "n_layer", asked->layers, "n_head", 32, "vocab_size", 50257,
            "n_positions", 1024);
}

static struct train_job job_of(const struct asked *asked)
{
    struct train_job job = train_job_default();
    job.model.config = config_of(asked);
    job.data.cutoff_len = 1024;
    job.device.backend = DEVICE_CUDA;
    job.device.cpu_threads = 1;
    job.device.memory_limit = 1ull << 50;
    job.device.host_memory_limit = 1ull << 50;
    job.train.per_device_train_batch_size = 1;
    job.train.gradient_accumulation_steps = 1;
    job.train.dtype = asked->dtype;
    job.train.gradient_checkpointing.mode =
            asked->keeps ? CHECKPOINTING_NONE : CHECKPOINTING_FULL;
    job.optim.state_type = asked->states;
    job.optim.stable_embedding = asked->wide_embedding;
    job.zero.stage = asked->stage;
    job.comm.reduce_dtype = COMM_REDUCE_DTYPE_COMPUTE;
    job.control.socket = CONTROL_NONE;
    return job;
}

struct held {
    double elements, parameters, gradients, optimizer, activations;
    struct explained rows[EXPLAINED_MAX];
    int count;
};

static struct held plan_of(const struct asked *asked)
{
    struct train_job job = job_of(asked);
    struct job_plan plan;
    struct held held = {0};
    cr_assert_eq(
            job_plan_build(
                    &job, asked->world, asked->world > 8 ? 8 : 0, NULL, &plan),
            ZD_OK, "%s", zd_error_get()->what);
    held.elements = (double)plan.table.total;
    held.count = plan_explain(&plan, held.rows);
    held.parameters = held.rows[0].bytes;
    held.gradients = held.rows[1].bytes;
    held.optimizer = held.rows[2].bytes;
    for (int i = 3; i < 6; i++)
        if (!isnan(held.rows[i].bytes))
            held.activations = held.rows[i].bytes;
    job_plan_fini(&plan);
    json_decref(job.model.config);
    return held;
}

static double states_of(const struct held *held)
{
    return held->parameters + held->gradients + held->optimizer;
}

Test(explain, the_figure_of_zero)
{
    static const double figure[] = {120, 31.4, 16.6, 1.88};
    for (int stage = 0; stage <= 3; stage++) {
        /* 36 layers are 7.46e9 parameters; the figure has 7.5e9 */
        const struct asked asked = {
                .layers = 36, .world = 64, .stage = stage, .dtype = DTYPE_BF16};
        struct held held = plan_of(&asked);
        double scaled = states_of(&held) * 7.5e9 / held.elements / 1e9,
               paper = 0;
        for (int i = 0; i < 3; i++)
            paper += held.rows[i].paper_bytes;
        cr_expect_float_eq(
                scaled, figure[stage], 0.005 * figure[stage], "stage %d: %.3f",
                stage, scaled);
        cr_expect_float_eq(
                states_of(&held), paper, 0.002 * paper, "stage %d: %.4g, %.4g",
                stage, states_of(&held), paper);
    }
}

Test(explain, a_thousand_million_parameters_in_fp32_with_adam_are_16_gigabytes)
{
    const struct asked asked = {.layers = 4, .world = 1};
    struct held held = plan_of(&asked);
    cr_expect_float_eq(states_of(&held) / held.elements, 16, 0.01);
    struct explain_states paper = explain_states(1e9, 4, 8, 1, 0);
    cr_expect_eq(paper.parameters + paper.gradients + paper.optimizer, 16e9);
}

Test(explain, gpt_2_xl_has_24_9_gigabytes_and_8_bits_save_8_81)
{
    const struct asked wide = {
            .model = "GPT-2 XL", .world = 1, .dtype = DTYPE_BF16};
    const struct asked narrow = {
            .model = "GPT-2 XL",
            .world = 1,
            .dtype = DTYPE_BF16,
            .states = OPTIM_STATE_8BIT,
            .wide_embedding = true};
    struct held before = plan_of(&wide), after = plan_of(&narrow);
    cr_expect_float_eq(
            states_of(&before) / 1e9, 24.9, 0.05, "%.3f",
            states_of(&before) / 1e9);
    double saved = (before.optimizer - after.optimizer) / 1e9;
    cr_expect_float_eq(saved, 8.81, 0.01, "%.4f", saved);
}

Test(explain, states_of_llama_8b)
{
    static const struct {
        enum optim_state_type states;
        bool wide_embedding;
        double figure;
    } rows[] = {
            {OPTIM_STATE_FP32, false, 64.24},
            {OPTIM_STATE_8BIT, false, 16.3},
            {OPTIM_STATE_8BIT, true, 19.4}};
    for (int i = 0; i < 3; i++) {
        const struct asked asked = {
                .model = "Llama 3.1 8B",
                .world = 1,
                .dtype = DTYPE_BF16,
                .states = rows[i].states,
                .wide_embedding = rows[i].wide_embedding};
        struct held held = plan_of(&asked);
        /* without the fp32 masters, which the figures leave out */
        double states = (held.optimizer - 4 * held.elements) / 1e9;
        cr_expect_float_eq(
                states, rows[i].figure, 0.05, "row %d: %.3f", i, states);
    }
}

/* "saves 70 % of GPT-3's activations and 65 % of the 530B model's" (section
 * 5), and five times less in all is of tensor and sequence parallelism too. */
Test(explain, korthikanti_of_gpt_3_and_the_530b_model)
{
    static const struct {
        double h, a, saved;
    } models[] = {{12288, 96, 0.70}, {20480, 128, 0.65}};
    for (int i = 0; i < 2; i++) {
        double h = models[i].h, a = models[i].a;
        double all = explain_layer(EXPLAIN_ALL, 2048, 1, h, a);
        double few = explain_layer(EXPLAIN_SELECTIVE, 2048, 1, h, a);
        cr_expect_float_eq(1 - few / all, models[i].saved, 0.006);
        cr_expect_eq(explain_layer(EXPLAIN_FULL, 2048, 1, h, a), few / 17);
    }
    /* equation 2 by hand: 1 x 4 x 8 (34 + 5 x 2 x 4 / 8) */
    cr_expect_eq(explain_layer(EXPLAIN_ALL, 4, 1, 8, 2), 32 * 39);
}

/* What GPT-2 keeps is near to the paper's layer of the same model. */
Test(explain, activations_of_gpt_2_xl_beside_the_formula)
{
    struct asked asked = {.model = "GPT-2 XL", .world = 1, .dtype = DTYPE_BF16};
    asked.keeps = true;
    struct held all = plan_of(&asked);
    double ratio = all.activations / all.rows[4].paper_bytes;
    cr_expect(ratio > 0.8 && ratio < 1.2, "%.3f", ratio);
    asked.keeps = false;
    struct held few = plan_of(&asked);
    cr_expect_geq(few.activations, few.rows[5].paper_bytes);
    cr_expect(isnan(few.rows[4].bytes));
}
