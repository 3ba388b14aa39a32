/* test_published.c - published figures against plans. Of each table of speed
 * one row is fitted (by the speed of the machine's matmuls), the others are
 * predicted; docs/measured/plan.md has the lines as they are made here. Figures
 * of memory count parameters, gradients and optimizer states. */
#include "train/plan/models.h"
#include "train/plan/predict.h"
#include "train/plan/search.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* GPUs, micro-batch, accumulation; tokens/s of a GPU as published. The first
 * of a model is the one that is fitted. */
struct row {
    int world, B, A;
    double published;
};

enum { ROWS_OF_MODELS = 6 };
struct table {
    const char *source, *model, *machine; /* of what; whose products are fitted
                                           */
    int hidden, layers, heads; /* of an MPT; 0: `model` is of models.h */
    int T, tp, cp;             /* tp, cp 0: 1 */
    enum cp_comm_type exchange;
    enum checkpointing_mode mode;
    bool on_cpu;     /* else CUDA */
    bool sends_fp32; /* gradients */
    int stage;
    bool in_fp32; /* else bf16 */
    enum optim_state_type states;
    bool wide_embedding; /* its states stay in 32 bits */
    struct row rows[ROWS_OF_MODELS];
};

/* llm-foundry, scripts/train/benchmarking/README.md at 8c8dd48 (H100 80 GB,
 * bf16, FULL_SHARD); torchtitan, benchmarks/llama3_h100_202412_torchtitan.md
 * (FSDP2, torch.compile, selective checkpointing, gradients reduced in fp32).
 */
/* clang-format off */
static const struct table tables[] = {
        {"torchtitan", "Llama 3.1 8B", "h100", .T = 8192, .mode = CHECKPOINTING_SELECTIVE, .sends_fp32 = true, .stage = 3,
         .rows = {{8, 2, 1, 6667}, {128, 2, 1, 6514}}},
        {"llm-foundry", "MPT 7B", "h100", 4096, 32, 32, .T = 2048, .mode = CHECKPOINTING_NONE, .stage = 3,
         .rows = {{8, 6, 1, 10643}, {128, 6, 1, 10475}, {256, 6, 1, 10119}, {512, 6, 1, 9670}}},
        {"llm-foundry", "MPT 70B", "h100", 8192, 80, 64, .T = 2048, .mode = CHECKPOINTING_FULL, .stage = 3,
         .rows = {{32, 2, 16, 882}, {64, 8, 4, 1039}, {128, 8, 1, 1058}, {256, 8, 1, 1035}, {512, 8, 1, 1007}}},
};
/* clang-format on */

static json_t *config_of(const struct table *table)
{
    const struct plan_model *model;
    for (int i = 0; !table->hidden && (model = plan_model_at(i)); i++)
        if (!strcmp(model->name, table->model))
            return plan_model_config(model);
    cr_assert(table->hidden, "no model %s", table->model);
    return json_pack(
            "{s:s, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_embd",
            table->hidden, "n_layer", table->layers, "n_head", table->heads,
            "vocab_size", 50368, "n_positions", 2048);
}

static void plan_row(
        const struct table *table, const struct row *row, struct job_plan *plan)
{
    struct train_job job = train_job_default();
    job.model.config = config_of(table);
    job.data.cutoff_len = table->T;
    job.device.backend = table->on_cpu ? DEVICE_CPU : DEVICE_CUDA;
    job.comm.backend = table->on_cpu ? COMM_AUTO : COMM_NCCL;
    job.device.cpu_threads = 1;
    job.device.memory_limit = 1ull << 50;
    job.device.host_memory_limit = 1ull << 50;
    job.train.per_device_train_batch_size = row->B;
    job.train.gradient_accumulation_steps = row->A;
    job.train.dtype = table->in_fp32 ? DTYPE_FP32 : DTYPE_BF16;
    job.optim.state_type = table->states;
    job.optim.stable_embedding = table->wide_embedding;
    job.train.gradient_checkpointing.mode = table->mode;
    job.zero.stage = table->stage;
    job.parallel.tp = table->tp ? table->tp : 1;
    job.parallel.cp = table->cp ? table->cp : 1;
    job.cp_comm_type = table->exchange;
    job.comm.reduce_dtype = table->sends_fp32 ? COMM_REDUCE_DTYPE_FP32
                                              : COMM_REDUCE_DTYPE_COMPUTE;
    job.control.socket = CONTROL_NONE;
    cr_assert_eq(
            job_plan_build(
                    &job, row->world, row->world > 8 ? 8 : 0, NULL, plan),
            ZD_OK, "%s", zd_error_get()->what);
    json_decref(job.model.config);
}

/* Tokens/s of a GPU. */
static double speed(
        const struct table *table, const struct row *row,
        const struct plan_machine *machine)
{
    struct job_plan plan;
    plan_row(table, row, &plan);
    double speed = plan_predict(&plan, machine).tokens_per_second;
    job_plan_fini(&plan);
    return speed / row->world;
}

/* A machine on which the first row takes what was published. */
static struct plan_machine fitted(const struct table *table)
{
    struct plan_machine machine = *plan_machine_find(table->machine);
    for (int i = 0; i < 40; i++)
        machine.products[0] *= table->rows[0].published /
                               speed(table, &table->rows[0], &machine);
    return machine;
}

/* Of the peak that the tables take, 989 TFLOPS, with attention counted whole:
 * 6 N + 12 L T h for a token. */
static double flops_of(const struct table *table)
{
    struct job_plan plan;
    plan_row(table, &table->rows[0], &plan);
    const struct model_config *config = &plan.config;
    double flops = 6 * (double)plan.table.total +
                   12.0 * config->layers * table->T * config->hidden_size;
    job_plan_fini(&plan);
    return flops;
}

static double mfu(const struct table *table, double speed)
{
    return 100 * speed * flops_of(table) / 989e12;
}

static void expect_in(const char *path, const char *line)
{
    static char text[1 << 18];
    FILE *file = fopen(path, "re");
    cr_assert(file, "no %s here", path);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    cr_expect(strstr(text, line), "%s lacks: %s", path, line);
}

static void expect_documented(const char *line)
{
    expect_in("docs/measured/plan.md", line);
}

Test(published, one_fitted_row_predicts_the_others_within_3_points)
{
    char line[200];
    ZD_EACH(table, tables, sizeof tables / sizeof tables[0]) {
        struct plan_machine machine = fitted(table);
        for (const struct row *row = table->rows; row->world; row++) {
            double ours = speed(table, row, &machine);
            double said = mfu(table, row->published), is = mfu(table, ours);
            ZD_PRINT(
                    line,
                    "| %s, %s | %d | %d x %d | %.0f, %.1f %% | %s%.0f, %.1f %% "
                    "|",
                    table->source, table->model, row->world, row->B, row->A,
                    row->published, said, row == table->rows ? "fitted: " : "",
                    ours, is);
            expect_documented(line);
            cr_expect_lt(fabs(is - said), 3, "%s", line);
        }
    }
}

/* --- memory --------------------------------------------------------------- */

enum { PARAMS = 1, GRADS = 2, OPTIMIZER = 4, NO_MASTERS = 8, STATES = 7 };

/* ZeRO's figure 1, arXiv:1910.02054, has 7.5e9 parameters and its model of 36
 * layers 7.46e9: rows with `of` are scaled to so many. Figures of AdamW's
 * states leave out the fp32 masters. */
static const struct memory_row {
    const char *model; /* of models.h; NULL: `layers` of GPT-2, 4096 wide */
    int layers, world, stage;
    bool in_fp32;
    enum optim_state_type states;
    bool wide_embedding; /* its states stay in 32 bits */
    unsigned what;
    double of, published; /* parameters (0: the model's own); GB */
} memory_rows[] = {
        /* clang-format off */
        {NULL, 36, 64, 0, false, OPTIM_STATE_FP32, false, STATES, 7.5e9, 120},
        {NULL, 36, 64, 1, false, OPTIM_STATE_FP32, false, STATES, 7.5e9, 31.4},
        {NULL, 36, 64, 2, false, OPTIM_STATE_FP32, false, STATES, 7.5e9, 16.6},
        {NULL, 36, 64, 3, false, OPTIM_STATE_FP32, false, STATES, 7.5e9, 1.88},
        {NULL, 4, 1, 0, true, OPTIM_STATE_FP32, false, STATES, 1e9, 16},
        {"GPT-2 XL", 0, 1, 0, false, OPTIM_STATE_FP32, false, STATES, 0, 24.9},
        {"GPT-2 XL", 0, 1, 0, false, OPTIM_STATE_8BIT, true, STATES, 0, 24.9 - 8.81},
        {"Llama 3.1 8B", 0, 1, 0, false, OPTIM_STATE_FP32, false, OPTIMIZER | NO_MASTERS, 0, 64.24},
        {"Llama 3.1 8B", 0, 1, 0, false, OPTIM_STATE_8BIT, false, OPTIMIZER | NO_MASTERS, 0, 16.3},
        {"Llama 3.1 8B", 0, 1, 0, false, OPTIM_STATE_8BIT, true, OPTIMIZER | NO_MASTERS, 0, 19.4},
        /* clang-format on */
};

static double planned_gigabytes(const struct memory_row *row)
{
    const struct table table = {
            .model = row->model ? row->model : "",
            .hidden = row->model ? 0 : 4096,
            .layers = row->layers,
            .heads = 32,
            .T = 1024,
            .mode = CHECKPOINTING_FULL,
            .stage = row->stage,
            .in_fp32 = row->in_fp32,
            .states = row->states,
            .wide_embedding = row->wide_embedding};
    static const enum span_kind kinds[] = {
            SPAN_PARAMS, SPAN_GRADS, SPAN_OPTIMIZER};
    const struct row one = {row->world, 1, 1, 0};
    struct job_plan plan;
    plan_row(&table, &one, &plan);
    double bytes = 0, elements = (double)plan.table.total;
    for (int i = 0; i < 3; i++)
        if (row->what & 1u << i)
            bytes += (double)arena_plan_kind_bytes(
                    &plan.arena, ARENA_DEVICE, kinds[i]);
    if (row->what & NO_MASTERS)
        bytes -= elements * sizeof(float);
    job_plan_fini(&plan);
    return bytes / 1e9 * (row->of > 0 ? row->of / elements : 1);
}

Test(published, parameters_gradients_and_states_match_papers)
{
    for (size_t i = 0; i < sizeof memory_rows / sizeof memory_rows[0]; i++) {
        const struct memory_row *row = &memory_rows[i];
        double planned = planned_gigabytes(row);
        cr_expect_float_eq(
                planned, row->published, 0.004 * row->published,
                "row %zu: %.4g GB planned, %.4g published", i, planned,
                row->published);
    }
}

/* "845,799" */
static void with_comma(int64_t value, char out[32])
{
    snprintf(out, 32, "%d,%03d", (int)(value / 1000), (int)(value % 1000));
}

/* Samples of any length, on a rank with these limits. The caller gives its
 * config back. */
static struct train_job long_job(uint64_t device, uint64_t host)
{
    const struct table llama = {.model = "Llama 3.1 8B"};
    struct train_job job = train_job_default();
    job.model.config = config_of(&llama);
    json_object_set_new(
            job.model.config, "max_position_embeddings", json_integer(1 << 23));
    job.device.backend = DEVICE_CUDA;
    job.device.memory_limit = device;
    job.device.host_memory_limit = host;
    job.train.per_device_train_batch_size = 1;
    job.train.gradient_checkpointing.mode = CHECKPOINTING_FULL;
    job.control.socket = CONTROL_NONE;
    return job;
}

static int64_t longest(const struct train_job *job, int world)
{
    const struct plan_search search = {
            .job = job, .world = world, .local_size = world};
    struct plan_most_found found;
    cr_assert_eq(
            plan_search_most(&search, PLAN_MOST_SEQ, false, &found), ZD_OK,
            "%s", zd_error_get()->what);
    return found.value;
}

Test(published, longest_samples_with_an_mlp_in_pieces)
{
    static const char *const places[] = {"none", "cpu"};
    struct train_job job = long_job(78ull << 30, 1ull << 42);
    job.optim.state_type = OPTIM_STATE_8BIT;
    job.offload.optimizer = job.offload.params = OFFLOAD_CPU;
    for (int place = 0; place < 2; place++) {
        char line[120], most[2][32];
        job.offload.activations = place ? OFFLOAD_CPU : OFFLOAD_NONE;
        for (int is_auto = 0; is_auto < 2; is_auto++) {
            job.train.tiled_mlp = !is_auto;
            with_comma(longest(&job, 1), most[is_auto]);
        }
        ZD_PRINT(line, "| `%s` | %s | %s |", places[place], most[0], most[1]);
        expect_in("docs/plan.md", line);
    }
    json_decref(job.model.config);
}

/* ALST (arXiv:2506.13996) has 3.7 million tokens on 8 H100 of 80 GB. */
Test(published, longest_samples_on_eight_gpus)
{
    struct train_job job = long_job(80000000000, 240000000000);
    double most[2];
    char line[160];
    job.zero.stage = 3;
    job.comm.backend = COMM_NCCL;
    job.parallel.cp = 8;
    job.offload.activations = OFFLOAD_CPU;
    for (int on_host = 0; on_host < 2; on_host++) {
        job.offload.optimizer = on_host ? OFFLOAD_CPU : OFFLOAD_NONE;
        most[on_host] = 1e-6 * (double)longest(&job, 8);
    }
    ZD_PRINT(
            line,
            "a sample of %.1f million tokens fits, and with "
            "`offload.optimizer = \"cpu\"` one of %.1f million",
            most[0], most[1]);
    expect_in("docs/clusters.md", line);
    json_decref(job.model.config);
}

static double kind_divided(
        const struct job_plan *one, const struct job_plan *four,
        enum span_kind kind)
{
    return (double)arena_plan_kind_bytes(&one->arena, ARENA_DEVICE, kind) /
           (double)arena_plan_kind_bytes(&four->arena, ARENA_DEVICE, kind);
}

/* By how much four ranks divide what one holds: the least of its kinds. */
static double divided(const struct job_plan *one, const struct job_plan *four)
{
    static const enum span_kind kinds[] = {
            SPAN_PARAMS, SPAN_GRADS, SPAN_OPTIMIZER, SPAN_ACTIVATIONS};
    double least = 4;
    for (int k = 0; k < 4; k++)
        least = fmin(least, kind_divided(one, four, kinds[k]));
    return least;
}

static void plan_one_and_four(
        struct table *table, const struct row *row, struct job_plan plans[2])
{
    for (int i = 0; i < 2; i++) {
        table->tp = i ? 4 : 1;
        plan_row(table, row, &plans[i]);
    }
}

/* Megatron (arXiv:1909.08053) cuts all of a layer but its norms; with sequence
 * parallelism (arXiv:2205.05198) 10 gathers or scatters of all tokens a layer,
 * and 4 of embedding and head. */
Test(published, tensor_parallelism_divides_a_rank_and_sends_what_papers_say)
{
    struct table table = {.model = "Llama 3.1 8B", .T = 4096};
    const struct row row = {.world = 4, .B = 1, .A = 2};
    struct job_plan plans[2];
    /* the head's logits take a large part then, on a CPU sums of matmuls too */
    table.mode = CHECKPOINTING_FULL;
    for (int i = 0; i < 2; i++) {
        table.on_cpu = i;
        plan_one_and_four(&table, &row, plans);
        cr_expect_gt(divided(&plans[0], &plans[1]), 3.8, "CPU: %d", i);
        job_plan_fini(&plans[0]);
        job_plan_fini(&plans[1]);
    }

    table.on_cpu = false;
    table.mode = CHECKPOINTING_NONE;
    plan_one_and_four(&table, &row, plans);
    cr_expect_gt(divided(&plans[0], &plans[1]), 3.8);
    const struct comm_counters *sent = &plans[1].zero.wire.group[ZERO_TP];
    double turns = 10.0 * plans[0].config.layers + 4;
    double tokens = (double)row.A * table.T * plans[0].config.hidden_size * 2;
    double papers = turns * tokens * (4 - 1) / 4;
    cr_expect_float_eq(
            (double)(sent->bytes[COMM_REDUCE_SCATTER] + sent->bytes[COMM_ALL_GATHER]) /
                    papers,
            1, 0.02);
    job_plan_fini(&plans[0]);
    job_plan_fini(&plans[1]);
}

Test(published, the_peak_of_a_gpu_is_known_by_its_whole_name)
{
    cr_expect_float_eq(
            plan_machine_peak("NVIDIA H100 80GB HBM3"), 989e12, 1e12);
    cr_expect_float_eq(
            plan_machine_peak("NVIDIA A100-SXM4-80GB"), 312e12, 1e12);
    cr_expect_eq(plan_machine_peak("NVIDIA GeForce RTX 4090 Laptop GPU"), 0);
    cr_expect_eq(plan_machine_peak(""), 0);
}

/* Llama 3 (arXiv:2407.21783) gathers keys and values forward and backward, and
 * scatters their gradients; Ulysses (arXiv:2309.14509) exchanges q, k, v and
 * what attention makes of them, each way. */
Test(published, context_parallelism_sends_what_papers_say_and_auto_the_less)
{
    const struct plan_machine *h100 = plan_machine_find("h100");
    struct table table = {
            .model = "Llama 3.1 8B", .T = 8192, .mode = CHECKPOINTING_NONE};
    const double C = 4096, C_kv = 1024, T = table.T, layers = 32, width = 2;
    for (int p = 2; p <= 8; p *= 2) {
        const struct row row = {.world = p, .B = 1, .A = 1};
        double others = layers * width * (p - 1) / p * T;
        const double papers[] = {
                [CP_ALLGATHER] = others * 3 * 2 * C_kv,
                [CP_A2A] = others * 2 / p * (2 * C + 2 * C_kv)};
        double sent[3], tokens_per_second[3];
        table.cp = p;
        for (int type = CP_AUTO; type <= CP_A2A; type++) {
            struct job_plan plan;
            table.exchange = (enum cp_comm_type)type;
            plan_row(&table, &row, &plan);
            const struct comm_counters *cp = &plan.zero.wire.group[ZERO_CP];
            sent[type] =
                    (double)(cp->bytes[COMM_ALL_GATHER] + cp->bytes[COMM_REDUCE_SCATTER] + cp->bytes[COMM_ALL_TO_ALL]);
            tokens_per_second[type] =
                    plan_predict(&plan, h100).tokens_per_second;
            job_plan_fini(&plan);
        }
        for (int type = CP_ALLGATHER; type <= CP_A2A; type++)
            cr_expect_eq(sent[type], papers[type], "%d places", p);
        cr_expect_eq(sent[CP_AUTO], fmin(sent[CP_ALLGATHER], sent[CP_A2A]));
        cr_expect_eq(
                tokens_per_second[CP_AUTO],
                fmax(tokens_per_second[CP_ALLGATHER],
                     tokens_per_second[CP_A2A]),
                "%d places: less to send takes less time", p);
    }
}

/* a2a keeps attention's output twice where backward computes nothing again, but
 * norms before attention once for all layers. */
Test(published, context_parallelism_divides_activations_in_every_mode)
{
    static const enum checkpointing_mode modes[] = {
            CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_FULL};
    struct table table = {.model = "Llama 3.1 8B"};
    for (int m = 0; m < 6; m++)
        for (int type = CP_AUTO; type <= CP_A2A; type++) {
            struct row row = {.world = 1, .B = 1, .A = 1};
            struct job_plan plans[2];
            table.mode = modes[m % 3];
            table.T = m < 3 ? 32768 : 4096;
            table.exchange = (enum cp_comm_type)type;
            table.cp = 1;
            plan_row(&table, &row, &plans[0]);
            table.cp = row.world = 4;
            plan_row(&table, &row, &plans[1]);
            bool by_heads = cp_by_heads(&plans[1].shape);
            cr_expect_gt(
                    kind_divided(&plans[0], &plans[1], SPAN_ACTIVATIONS), 3.8,
                    "mode %d, type %d", m, type);
            if (type == CP_AUTO)
                cr_expect_eq(by_heads, m % 3 == 0, "mode %d", m);
            job_plan_fini(&plans[0]);
            job_plan_fini(&plans[1]);
        }
}
