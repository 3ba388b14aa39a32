#include "train/trainer/trainer.h"

#include "base/must.h"

#include <stdlib.h>

static struct mesh_group samples_of(const struct trainer *trainer)
{
    return mesh_samples(trainer->plan.mesh, comm_rank(trainer->comm));
}

struct loader_order batches_order(
        const struct trainer *trainer,
        int64_t (*sample_of)(void *ctx, int64_t batch, int b), void *ctx)
{
    const struct job_plan *plan = &trainer->plan;
    return (struct loader_order){
            .sample_of = sample_of,
            .ctx = ctx,
            .keeps_length = plan->mesh.cp * plan->mesh.tp > 1,
            .places = plan->shape.cp.size,
            .place = plan->shape.cp.place};
}

struct model_batch batches_of_model(const struct loader_batch *loaded, int B)
{
    return (struct model_batch){
            .tokens = loaded->tokens,
            .targets = loaded->targets,
            .doc_start = loaded->doc_start,
            .all_doc_start = loaded->all_doc_start,
            .B = B,
            .T = loaded->T};
}

bool trainer_counts_sample(const struct trainer *trainer)
{
    struct mesh_place place =
            mesh_place(trainer->plan.mesh, comm_rank(trainer->comm));
    return place.cp == 0 && place.tp == 0;
}

bool trainer_counts_loss(const struct trainer *trainer)
{
    return mesh_place(trainer->plan.mesh, comm_rank(trainer->comm)).tp == 0;
}

static int64_t sample_of(void *ctx, int64_t batch, int b)
{
    const struct trainer *trainer = ctx;
    struct mesh_group samples = samples_of(trainer);
    int64_t A = trainer->plan.accumulation, B = trainer->plan.per_device;
    int64_t step = batch / A, micro = batch % A;
    return trainer->base_sample + step * trainer->plan.global_batch +
           (micro * samples.size + samples.place) * B + b;
}

int64_t batches_first_sample(const struct trainer *trainer, int a)
{
    struct mesh_group samples = samples_of(trainer);
    return trainer->state.samples_taken +
           ((int64_t)a * samples.size + samples.place) *
                   trainer->plan.per_device;
}

enum zd_status batches_start(struct trainer *trainer)
{
    const struct job_plan *plan = &trainer->plan;
    int room = trainer->batch_room, A = plan->accumulation;
    int ahead = A <= room / 2 ? room / 2 : room - A;
    int64_t steps = trainer->state.max_steps - trainer->state.step;
    struct loader_order order = batches_order(trainer, sample_of, trainer);
    trainer->base_sample = trainer->state.samples_taken;
    trainer->has_batches = false;
    trainer->batches = zd_array((size_t)A, sizeof *trainer->batches);
    trainer->model_batches =
            zd_array((size_t)A, sizeof *trainer->model_batches);
    return loader_create(
            trainer->train_data, order, 0, steps * A, plan->per_device,
            plan->shape.T, room - ahead, ahead,
            arena_span(&trainer->arena, "train.batches"), &trainer->loader);
}

void batches_stop(struct trainer *trainer)
{
    loader_destroy(trainer->loader);
    free(trainer->batches);
    free(trainer->model_batches);
    trainer->loader = NULL;
    trainer->batches = NULL;
    trainer->model_batches = NULL;
}

enum zd_status batches_accumulate(struct trainer *trainer, int accumulation)
{
    struct job_plan *plan = &trainer->plan;
    int most = trainer->batch_room - 1; /* minus one for reading ahead */
    long long across = (long long)plan->per_device * samples_of(trainer).size;
    enum zd_status status;
    if (plan->by_layer && most > plan->shape.micros)
        most = plan->shape.micros;
    if (accumulation == plan->accumulation)
        return ZD_OK;
    if (accumulation > most)
        status =
                ZD_FAIL(ZD_ERR_UNFIT, "E1008",
                        "the planned memory has room for %d micro-batches per "
                        "step, not %d",
                        most, accumulation);
    else
        status = zero_plan_reaccumulate(&plan->zero, accumulation);
    if (status != ZD_OK) {
        bool has_batch = trainer->job->train.global_batch_size > 0;
        zd_fail_help(
                "set train.%s = %lld in the job file: the next start goes on "
                "from the checkpoint with it",
                has_batch ? "global_batch_size" : "gradient_accumulation_steps",
                has_batch ? across * accumulation : (long long)accumulation);
        return status;
    }
    plan->accumulation = accumulation;
    plan->global_batch = across * accumulation;
    return ZD_OK;
}
