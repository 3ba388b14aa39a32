/* test_training - a real model over the hooks of ZeRO, ranks being threads:
 * losses and weights are the same bits at every stage and with every way of
 * checkpointing, and the wire is the planned one. A plain program (TAP). */
#include "model/files/config.h"
#include "zero/zero.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, B = 2, T = 13, VOCAB = 61 };

struct layout {
    int stage, world;
    enum dtype dtype;
    struct checkpointing checkpointing;
    bool offload; /* the residual stream, by threads */
    bool reduce_fp32;
};

struct shared {
    struct model_config config;
    struct param_table table;
    const struct kernels *kernels;
    struct model_shape shape;
    struct zero_plan plan;
    float *weights; /* all tensors one after the other, after the steps */
    double losses[STEPS], evaluated;
};

struct rank {
    struct shared *shared;
    struct comm *comm;
    struct arena arena;
    struct zero *zero;
    struct model *model;
    struct model_streams streams;
    bool wire_matches;
    enum zd_status status;
    char what[1024];
};

static const char llama[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 24,"
        " \"intermediate_size\": 40, \"num_hidden_layers\": 4,"
        " \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        " \"vocab_size\": 61, \"max_position_embeddings\": 32,"
        " \"tie_word_embeddings\": true}";
static const char gpt2[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 3,"
        " \"n_head\": 3, \"vocab_size\": 61, \"n_positions\": 32,"
        " \"tie_word_embeddings\": false}";

/* --- one rank ------------------------------------------------------------- */

static void make_batch(int rank, int step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + rank * 11 + step * 5) % VOCAB;
        targets[i] = i % 5 ? (tokens[i] * 3 + 1) % VOCAB : -1;
    }
}

static enum zd_status step(struct rank *rank, int k)
{
    struct zero *zero = rank->zero;
    struct model_hooks hooks = zero_hooks(zero);
    int32_t tokens[B * T], targets[B * T], doc_start[B * T] = {0};
    int64_t counts[ZERO_STEP_COUNTS] = {0};
    struct model_batch batch = {tokens, targets, doc_start, B, T};
    struct exact_sum loss;
    double norm;
    make_batch(comm_rank(rank->comm), k, tokens, targets);
    for (int i = 0; i < B * T; i++)
        counts[0] += targets[i] >= 0;
    ZD_TRY(zero_step_begin(zero));
    ZD_TRY(comm_all_reduce_i64(rank->comm, counts, ZERO_STEP_COUNTS, COMM_SUM));
    ZD_TRY(zero_micro_begin(zero, 0));
    ZD_TRY(model_forward(rank->model, &batch, 1.0f / (float)counts[0], &hooks));
    ZD_TRY(model_backward(rank->model, &hooks));
    ZD_TRY(zero_reduce_finish(zero));
    ZD_TRY(model_loss_take(rank->model, &loss));
    ZD_TRY(zero_grad_norm(zero, &norm, &loss));
    struct optim_options options = optim_options_default();
    struct optim_step update = {
            .options = &options,
            .learning_rate = 0.01,
            .t = k + 1,
            .grad_scale = (float)fmin(1, 1 / (norm + 1e-6))};
    ZD_TRY(zero_update(zero, &update));
    ZD_TRY(zero_gather_params(zero));
    if (comm_rank(rank->comm) == 0)
        rank->shared->losses[k] = exact_sum_value(&loss) / (double)counts[0];
    return ZD_OK;
}

/* Two batches in one evaluation. */
static enum zd_status evaluate(struct rank *rank)
{
    struct model_hooks hooks = zero_hooks(rank->zero);
    int32_t tokens[B * T], targets[B * T], doc_start[B * T] = {0};
    struct model_batch batch = {tokens, targets, doc_start, B, T};
    struct exact_sum loss;
    ZD_TRY(zero_eval_begin(rank->zero));
    for (int k = 0; k < 2; k++) {
        make_batch(comm_rank(rank->comm), STEPS + k, tokens, targets);
        ZD_TRY(model_evaluate(rank->model, &batch, &hooks));
    }
    ZD_TRY(model_loss_take(rank->model, &loss));
    if (comm_rank(rank->comm) == 0)
        rank->shared->evaluated = exact_sum_value(&loss);
    return ZD_OK;
}

/* Ranks write different parts of the shared weights. */
static void save(const struct rank *rank)
{
    const struct param_table *table = &rank->shared->table;
    for (int i = 0; i < zero_range_count(rank->zero, ZERO_SAVES); i++) {
        struct zero_range range = zero_range_at(rank->zero, ZERO_SAVES, i);
        size_t at = range.begin;
        for (int id = 0; id < range.id; id++)
            at += table->params[id].count;
        zero_range_read(
                rank->zero, &range, ZERO_WEIGHTS, 0, range.count,
                rank->shared->weights + at, NULL);
    }
}

static enum zd_status run_steps(struct rank *rank)
{
    struct shared *shared = rank->shared;
    struct weight_source source;
    ZD_TRY(weights_open_random(5, &shared->table, &source));
    enum zd_status status = zero_load(rank->zero, &source, NULL);
    weights_close(&source);
    rank->wire_matches = true;
    for (int k = 0; k < STEPS && status == ZD_OK; k++) {
        struct comm_counters before = zero_wire(rank->zero);
        status = step(rank, k);
        struct comm_counters after = zero_wire(rank->zero);
        const struct comm_counters *wire = &shared->plan.wire;
        rank->wire_matches &=
                after.reduce_scatter - before.reduce_scatter ==
                        wire->reduce_scatter &&
                after.all_gather - before.all_gather == wire->all_gather &&
                after.all_reduce - before.all_reduce == wire->all_reduce;
    }
    if (status == ZD_OK)
        save(rank);
    return status == ZD_OK ? evaluate(rank) : status;
}

static enum zd_status create_streams(struct rank *rank)
{
    ZD_TRY(stream_create("down", STREAM_THREAD, &rank->streams.down));
    ZD_TRY(stream_create("up", STREAM_THREAD, &rank->streams.up));
    model_set_streams(rank->model, &rank->streams);
    return ZD_OK;
}

static enum zd_status run_rank(struct rank *rank)
{
    struct shared *shared = rank->shared;
    struct arena_plan plan;
    arena_plan_init(&plan);
    enum zd_status status = zero_plan_spans(&shared->plan, &plan);
    if (status == ZD_OK)
        status = model_plan(
                &shared->config, &shared->table, &shared->shape, &plan);
    if (status == ZD_OK)
        status = comm_plan(&plan, comm_size(rank->comm));
    if (status == ZD_OK)
        status = arena_take(&rank->arena, &plan);
    if (status == ZD_OK && arena_plan_find(&plan, "comm.staging"))
        comm_set_staging(rank->comm, arena_span(&rank->arena, "comm.staging"));
    if (status == ZD_OK)
        status = zero_create(
                &shared->plan, rank->comm, &rank->arena, NULL, &rank->zero);
    if (status == ZD_OK)
        status = model_create(
                &shared->config, &shared->table, &shared->shape,
                shared->kernels, &rank->arena, &rank->model);
    if (status == ZD_OK && shared->shape.offload_activations)
        status = create_streams(rank);
    if (status == ZD_OK)
        status = run_steps(rank);
    model_destroy(rank->model);
    stream_destroy(rank->streams.down);
    stream_destroy(rank->streams.up);
    zero_destroy(rank->zero);
    arena_release(&rank->arena);
    arena_plan_fini(&plan);
    return status;
}

static void *rank_main(void *ctx)
{
    struct rank *rank = ctx;
    rank->status = run_rank(rank);
    if (rank->status != ZD_OK)
        snprintf(rank->what, sizeof rank->what, "%s", zd_error_get()->what);
    comm_destroy(rank->comm);
    return NULL;
}

/* --- a world -------------------------------------------------------------- */

static enum zd_status shared_init(
        struct shared *shared, const char *json, const struct layout *layout)
{
    json_t *object;
    ZD_TRY(json_parse(json, strlen(json), "test", ZD_ERR_BUG, &object));
    enum zd_status status =
            model_config_parse(object, "test", ZD_ERR_CONFIG, &shared->config);
    json_decref(object);
    if (status == ZD_OK)
        status = param_table_build(&shared->config, NULL, 0, &shared->table);
    if (status == ZD_OK)
        status = kernels_plain(layout->dtype, &shared->kernels);
    if (status != ZD_OK)
        return status;
    shared->shape = (struct model_shape){
            .B = B,
            .T = T,
            .eval_B = B,
            .dtype = layout->dtype,
            .checkpointing = layout->checkpointing,
            .head_chunk = 8,
            .train = true,
            .offload_activations = layout->offload};
    shared->weights = calloc(shared->table.total, sizeof(float));
    struct zero_request request = {
            .config = &shared->config,
            .table = &shared->table,
            .world = layout->world,
            .options = zero_options_default(),
            .dtype = layout->dtype,
            .accumulation = 1,
            .reduce_fp32 = layout->reduce_fp32,
            .checkpointing = layout->checkpointing,
            .optim = optim_options_default(),
            .train = true};
    request.options.stage = layout->stage;
    return zero_plan_build(&request, &shared->plan);
}

static void shared_fini(struct shared *shared)
{
    zero_plan_fini(&shared->plan);
    param_table_fini(&shared->table);
    model_config_fini(&shared->config);
    free(shared->weights);
}

/* False, and why, when a rank failed or sent something else than planned. */
static bool run(
        struct shared *shared, const char *json, const struct layout *layout)
{
    struct comm_options options = {.backend = COMM_LOCAL};
    struct rank ranks[8] = {0};
    struct comm *comms[8];
    pthread_t threads[8];
    bool ok = true;
    *shared = (struct shared){0};
    if (shared_init(shared, json, layout) != ZD_OK ||
        comm_local_create(layout->world, &options, comms) != ZD_OK) {
        printf("# %s\n", zd_error_get()->what);
        return false;
    }
    for (int r = 0; r < layout->world; r++) {
        ranks[r].shared = shared;
        ranks[r].comm = comms[r];
        pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int r = 0; r < layout->world; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < layout->world && ok; r++) {
        ok = ranks[r].status == ZD_OK && ranks[r].wire_matches;
        if (!ok)
            printf("# stage %d, rank %d: %s\n", layout->stage, r,
                   ranks[r].status ? ranks[r].what : "wire differs");
    }
    return ok;
}

static bool same(const struct shared *a, const struct shared *b)
{
    return !memcmp(a->losses, b->losses, sizeof a->losses) &&
           a->evaluated == b->evaluated &&
           !memcmp(a->weights, b->weights, a->table.total * sizeof(float));
}

/* All layouts of a world against stage 0 without checkpointing. */
static bool layouts_agree(
        const char *json, int world, enum dtype dtype, bool reduce_fp32)
{
    static const struct layout others[] = {
            {1, 0, 0, {CHECKPOINTING_NONE, 0}},
            {2, 0, 0, {CHECKPOINTING_EVERY, 2}},
            {3, 0, 0, {CHECKPOINTING_NONE, 0}},
            {3, 0, 0, {CHECKPOINTING_EVERY, 2}},
            {3, 0, 0, {CHECKPOINTING_FULL, 0}},
            {2, 0, 0, {CHECKPOINTING_FULL, 0}, true},
            {3, 0, 0, {CHECKPOINTING_FULL, 0}, true}};
    struct layout layout = {
            .world = world, .dtype = dtype, .reduce_fp32 = reduce_fp32};
    struct shared first;
    bool ok = run(&first, json, &layout);
    ok &= isfinite(first.losses[0]) && first.losses[2] < first.losses[0] &&
          first.evaluated > 0;
    for (int k = 0; k < 7 && ok; k++) {
        struct shared other;
        layout = others[k];
        layout.world = world;
        layout.dtype = dtype;
        layout.reduce_fp32 = reduce_fp32;
        ok = run(&other, json, &layout);
        if (ok && !same(&first, &other)) {
            printf("# stage %d with checkpointing %d differs\n", layout.stage,
                   layout.checkpointing.mode);
            ok = false;
        }
        shared_fini(&other);
    }
    shared_fini(&first);
    return ok;
}

/* Rounded before the ranks are added up, or after that. */
static bool rounding_differs(void)
{
    struct shared shared[2];
    bool ok = true;
    for (int k = 0; k < 2; k++) {
        struct layout layout = {
                .stage = 2,
                .world = 3,
                .dtype = DTYPE_BF16,
                .reduce_fp32 = k == 1};
        ok &= run(&shared[k], llama, &layout);
    }
    ok = ok && !same(&shared[0], &shared[1]) &&
         shared[1].plan.wire.reduce_scatter ==
                 2 * shared[0].plan.wire.reduce_scatter &&
         shared[1].plan.wire.all_gather == shared[0].plan.wire.all_gather;
    for (int k = 0; k < 2; k++)
        shared_fini(&shared[k]);
    return ok;
}

static int tests, failures;

static void tell(bool ok, const char *name)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++tests, name);
    failures += !ok;
}

int main(void)
{
    for (int half = 0; half <= 1; half++) {
        for (int family = 0; family <= 1; family++) {
            int world = 2 + family;
            char name[96];
            snprintf(
                    name, sizeof name,
                    "every layout trains alike: %s, %s, %d ranks",
                    family ? "gpt2" : "llama", half ? "bf16" : "fp32", world);
            tell(layouts_agree(
                         family ? gpt2 : llama, world,
                         half ? DTYPE_BF16 : DTYPE_FP32, false),
                 name);
        }
    }
    tell(layouts_agree(llama, 3, DTYPE_BF16, true),
         "every layout trains alike: gradients reduced in fp32");
    tell(rounding_differs(), "which sends twice as much, with other bits");
    printf("1..%d\n", tests);
    return failures > 0;
}
