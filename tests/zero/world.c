#include "world.h"

#include "saves.h"

#include "base/device/device_memory.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct rank {
    const struct scenario *scenario;
    const struct fake *fake;
    struct model_config config; /* of its place */
    struct zero_plan plan;
    struct comm *comm;
    const struct offload_place *place;
    void *late; /* see struct fake_pass */
    struct saver *saver;
    struct outcome *outcome; /* each rank writes its own ranges */
    enum zd_status status;
    double norms[STEPS_MAX], losses[STEPS_MAX], seen, evaluated;
    bool wire_matches;
    char what[1024];
};

struct scenario scenario_default(int stage, int world, enum dtype dtype)
{
    struct scenario s = {
            .shape = {.layers = 4, .scale = 2, .freeze_every = 6},
            .world = world,
            .accumulation = 1,
            .steps = 3,
            .options = zero_options_default(),
            .optim = optim_options_default(),
            .clip = 1,
            .offload = offload_options_default(),
            .dtype = dtype};
    s.options.stage = stage;
    s.optim.learning_rate = 0.01;
    return s;
}

void scenario_vary(struct scenario *s, int variant)
{
    struct zero_options *o = &s->options;
    s->shape.tied = variant & 1;
    s->shape.freeze_low = (variant & 6) == 6;
    o->overlap_comm = variant % 5 != 1;
    o->prefetch_bucket_size = variant % 5 == 2 ? 1 << 20 : 0;
    if (variant % 5 == 4) {
        s->checkpointing =
                (struct checkpointing){.mode = CHECKPOINTING_EVERY, .every = 3};
        s->evaluates = true;
    }
}

/* --- one rank ------------------------------------------------------------- */

static enum zd_status step(struct rank *rank, struct zero *zero, int k)
{
    const struct scenario *s = rank->scenario;
    struct model_hooks hooks = zero_hooks(zero);
    int64_t counts[ZERO_STEP_COUNTS] = {1, 2, 3, 4, 5};
    struct exact_sum loss = {0};
    struct optim_step update = {
            .options = &s->optim,
            .learning_rate = s->optim.learning_rate,
            .seed = 11,
            .t = s->first_step + k + 1,
            .grad_scale = 1};
    ZD_TRY(zero_step_begin(zero));
    zero_step_expect(zero, &update);
    ZD_TRY(comm_all_reduce_i64(rank->comm, counts, ZERO_STEP_COUNTS, COMM_SUM));
    int turns = s->by_layer ? 1 : s->accumulation;
    for (int micro = 0; micro < turns; micro++) {
        struct fake_pass pass = {
                .fake = rank->fake,
                .hooks = &hooks,
                .dtype = s->dtype,
                .checkpointing = s->checkpointing,
                .rank = comm_rank(rank->comm),
                .micro = micro,
                .more = s->accumulation / turns - 1,
                .step = s->first_step + k,
                .silent = s->still || (s->solo && comm_rank(rank->comm) > 0),
                .broken = ((s->broken && k == s->steps - 1) ||
                           s->broken_steps & 1 << k) &&
                          comm_rank(rank->comm) == s->world - 1,
                .late = rank->late};
        double seen;
        ZD_TRY(zero_micro_begin(zero, micro));
        ZD_TRY(fake_train(&pass, &seen));
        rank->seen += seen;
        for (int i = 0; i <= pass.more; i++)
            exact_sum_add(&loss, 0.1 * (1 + comm_rank(rank->comm)));
    }
    ZD_TRY(zero_reduce_finish(zero));
    ZD_TRY(zero_grad_norm(zero, &rank->norms[k], &loss));
    rank->losses[k] = exact_sum_value(&loss);
    if (!isfinite(rank->norms[k]))
        return zero_skip(zero);
    double clip = s->clip > 0 ? s->clip : 1;
    update.grad_scale =
            s->shows_grads || s->unclipped_steps & 1 << k
                    ? 1
                    : (float)fmin(1, clip / (rank->norms[k] + 1e-6));
    ZD_TRY(zero_update(zero, &update));
    return zero_gather_params(zero);
}

static enum zd_status evaluate(struct rank *rank, struct zero *zero)
{
    struct model_hooks hooks = zero_hooks(zero);
    struct fake_pass pass = {
            .fake = rank->fake,
            .hooks = &hooks,
            .dtype = rank->scenario->dtype,
            .late = rank->late};
    ZD_TRY(zero_eval_begin(zero));
    ZD_TRY(fake_evaluate(&pass, &rank->evaluated));
    return fake_evaluate(&pass, &rank->evaluated);
}

static bool sent_as_planned(
        const struct rank *rank, const struct zero_wire *before,
        const struct zero_wire *after)
{
    bool ok = true;
    for (int g = 0; g < ZERO_GROUPS; g++) {
        struct comm_counters sent = zero_wire_since(before, after).group[g];
        struct comm_counters wire = rank->plan.wire.group[g];
        for (int i = 0; i < COMM_COUNTERS; i++)
            ok &= sent.bytes[i] == wire.bytes[i];
    }
    return ok;
}

static enum zd_status read_nothing(
        void *ctx, int id, size_t begin, size_t count, float *out)
{
    return ZD_BAD("E0301", "tensor %d cannot be read", id);
}

static enum zd_status run_steps(struct rank *rank, struct zero *zero)
{
    const struct scenario *s = rank->scenario;
    struct fake *fake = (struct fake *)(uintptr_t)rank->fake;
    struct weight_source source = fake_weights(fake);
    if (s->unreadable && comm_rank(rank->comm) == 1)
        source.read = read_nothing;
    ZD_TRY(zero_load(zero, &source, NULL));
    if (s->resume)
        ZD_TRY(outcome_restore(s->resume, &fake->table, zero));
    rank->wire_matches = true;
    for (int k = 0; k < s->steps; k++) {
        struct zero_wire before = zero_wire(zero), after;
        ZD_TRY(step(rank, zero, k));
        after = zero_wire(zero);
        rank->wire_matches &= sent_as_planned(rank, &before, &after);
        if (s->saves & 1 << k)
            ZD_TRY(saver_begin(rank->saver));
        if (s->evaluates)
            ZD_TRY(evaluate(rank, zero));
    }
    if (s->goes_back)
        ZD_TRY(outcome_restore(s->resume, &fake->table, zero));
    if (s->clears)
        ZD_TRY(zero_states_clear(zero));
    ZD_TRY(outcome_save(rank->outcome, &fake->table, zero));
    return s->saves ? saver_judge(rank->saver) : ZD_OK;
}

static enum zd_status place_create(
        const struct rank *rank, struct offload_place *place)
{
    const struct scenario *s = rank->scenario;
    *place = (struct offload_place){
            .worker_threads = s->workers > 0 ? s->workers : 1,
            .streams = s->streams,
            .first_cpu = -1,
            .file_name = "world"};
    enum stream_mode mode =
            device_backend() == DEVICE_CUDA ? STREAM_CUDA : s->streams;
    ZD_TRY(stream_create("down", mode, &place->down));
    return stream_create("up", mode, &place->up);
}

static void place_destroy(struct offload_place *place)
{
    stream_destroy(place->down);
    stream_destroy(place->up);
}

static enum zd_status run_planned(
        struct rank *rank, const struct arena_plan *memory)
{
    struct offload_place place = {0};
    struct arena arena;
    struct zero *zero = NULL;
    ZD_TRY(arena_take(&arena, memory));
    comm_set_memory(rank->comm, &arena);
    enum zd_status status = place_create(rank, &place);
    rank->place = &place;
    size_t late_bytes = fake_largest_bytes(rank->fake);
    if (status == ZD_OK)
        status = zero_create(&rank->plan, rank->comm, &arena, &place, &zero);
    ZD_THEN(status, device_take(late_bytes, &rank->late));
    if (status == ZD_OK && rank->scenario->saves)
        status = saver_create(
                zero, &rank->plan, rank->scenario->save_eighths, &rank->saver);
    ZD_THEN(status, run_steps(rank, zero));
    saver_destroy(rank->saver);
    device_give(rank->late, late_bytes);
    zero_destroy(zero);
    place_destroy(&place);
    arena_release(&arena);
    return status;
}

static enum zd_status run_rank(struct rank *rank)
{
    struct arena_plan memory;
    arena_plan_init(&memory);
    enum zd_status status = zero_plan_spans(&rank->plan, &memory);
    struct comm_needs needs = {.transport = comm_transport(rank->comm)};
    for (int g = 0; g < ZERO_GROUPS && status == ZD_OK; g++)
        if (zero_comm_needs(&rank->plan, (enum zero_group)g, &needs))
            status = comm_plan_needs(&memory, &needs);
    ZD_THEN(status, run_planned(rank, &memory));
    arena_plan_fini(&memory);
    return status;
}

/* On its device, over a comm for the device's memory. */
static enum zd_status run_on_device(struct rank *rank)
{
    const struct scenario *s = rank->scenario;
    struct comm_options options = {.backend = COMM_AUTO};
    struct comm *control = rank->comm;
    struct device *device;
    if (s->backend != DEVICE_CUDA)
        return run_rank(rank);
    ZD_TRY(device_open(DEVICE_CUDA, comm_rank(control), s->world, &device));
    device_use(device);
    enum zd_status status = comm_device_create(control, &options, &rank->comm);
    if (status == ZD_OK) {
        status = run_rank(rank);
        ZD_THEN(status, device_check());
        if (rank->comm != control)
            comm_destroy(rank->comm);
    }
    rank->comm = control;
    device_use(NULL);
    device_close(device);
    return status;
}

static void *rank_main(void *ctx)
{
    struct rank *rank = ctx;
    if (rank->scenario->threads)
        omp_set_num_threads(rank->scenario->threads);
    rank->status = run_on_device(rank);
    if (rank->status != ZD_OK)
        ZD_PRINT(rank->what, "%s", zd_error_get()->what);
    comm_destroy(rank->comm);
    return NULL;
}

/* --- a world -------------------------------------------------------------- */

static void collect(
        const struct rank *ranks, const struct scenario *s, struct outcome *out)
{
    out->wire_matches = out->ranks_agree = true;
    out->seen = ranks[0].seen;
    out->evaluated = ranks[0].evaluated;
    memcpy(out->norms, ranks[0].norms, sizeof out->norms);
    memcpy(out->losses, ranks[0].losses, sizeof out->losses);
    for (int r = 0; r < s->world; r++) {
        out->records += ranks[r].what[0] != '\0';
        if (out->status == ZD_OK && ranks[r].status != ZD_OK) {
            out->status = ranks[r].status;
            ZD_PRINT(out->what, "%s", ranks[r].what);
        }
        out->wire_matches &= ranks[r].wire_matches;
        out->ranks_agree &=
                !memcmp(out->norms, ranks[r].norms, sizeof out->norms) &&
                !memcmp(out->losses, ranks[r].losses, sizeof out->losses) &&
                ranks[r].seen == out->seen &&
                ranks[r].evaluated == out->evaluated;
    }
}

static struct mesh mesh_for(const struct scenario *s)
{
    struct mesh mesh = mesh_of(s->world, 0);
    mesh.tp = s->tp > 1 ? s->tp : 1;
    mesh.replicate = s->replicate > 1 ? s->replicate : 1;
    mesh.shard = s->world / (mesh.tp * mesh.replicate);
    return mesh;
}

/* The plan of each rank; those of a place are the same. */
static enum zd_status plan_ranks(
        const struct scenario *s, const struct fake *fake, struct rank *ranks)
{
    struct zero_request request = {
            .table = &fake->table,
            .mesh = mesh_for(s),
            .options = s->options,
            .dtype = s->dtype,
            .accumulation = s->by_layer ? 1 : s->accumulation,
            .by_layer = s->by_layer ? s->accumulation : 0,
            .checkpointing = s->checkpointing,
            .optim = s->optim,
            .offload = s->offload,
            .accumulate_on_host = s->accumulate_on_host,
            .spill_bytes = s->spill_bytes,
            .reduce_fp32 = s->reduce_fp32,
            .train = true};
    for (int r = 0; r < s->world; r++) {
        ranks[r].config = fake->config;
        ranks[r].config.tp =
                (struct tp){request.mesh.tp, mesh_place(request.mesh, r).tp};
        request.config = &ranks[r].config;
        ZD_TRY(zero_plan_build(&request, &ranks[r].plan));
    }
    return ZD_OK;
}

struct outcome world_run(const struct scenario *s)
{
    struct fake fake;
    struct rank ranks[8] = {0};
    struct comm *comms[8];
    pthread_t threads[8];
    struct comm_options options = {.backend = COMM_LOCAL};
    fake_create(&fake, &s->shape);
    struct outcome out;
    outcome_init(&out, fake.table.total);
    out.status = plan_ranks(s, &fake, ranks);
    if (out.status == ZD_OK)
        out.status = comm_local_create(s->world, &options, comms);
    if (out.status != ZD_OK) {
        ZD_PRINT(out.what, "%s", zd_error_get()->what);
        return out;
    }
    for (int r = 0; r < s->world; r++) {
        ranks[r].scenario = s;
        ranks[r].fake = &fake;
        ranks[r].comm = comms[r];
        ranks[r].outcome = &out;
        pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int r = 0; r < s->world; r++)
        pthread_join(threads[r], NULL);
    collect(ranks, s, &out);
    for (int r = 0; r < s->world; r++)
        zero_plan_fini(&ranks[r].plan);
    fake_destroy(&fake);
    return out;
}
