/* weights.c - what a run begins with. */
#include "base/must.h"
#include "model/adapters/lora.h"
#include "model/files/weights_hf.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>
#include <string.h>

enum zd_status trainer_open_base(
        const void *of, const struct model_config *config,
        const struct param_table *table, struct weight_source *source)
{
    const struct train_job *job = of;
    const char *path = train_stored_base(job);
    if (!path)
        return weights_open_random(job->job.seed, table, source);
    return weights_open_hf(path, config, table, NULL, source);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Shapes agree; whether it is the same model is not known. */
static void tell_base(const struct trainer *trainer)
{
    const char *here = trainer->job->model.path;
    const char *was = trainer->plan.adapter.base_model;
    if (!trainer->job->lora.path || !here || !was || !was[0] ||
        !trainer_is_first(trainer) ||
        strcmp(last_part(was), last_part(here)) == 0)
        return;
    zd_log_info(
            "the adapter of lora.path was made for `%s`; it goes on with %s",
            was, here);
}

static enum zd_status open_source(
        const struct train_job *job, const struct job_plan *plan,
        struct weight_source *source)
{
    ZD_TRY(trainer_open_base(job, &plan->config, &plan->table, source));
    if (!plan->table.adapters)
        return ZD_OK;
    return weights_open_lora(
            &plan->config, &plan->table, source, job->job.seed, job->lora.path,
            source);
}

enum zd_status trainer_load_weights(struct trainer *trainer, bool digests)
{
    struct weight_source source;
    const struct param_table *table = &trainer->plan.table;
    uint64_t *each =
            digests ? zd_array((size_t)table->count, sizeof *each) : NULL;
    enum zd_status status = open_source(trainer->job, &trainer->plan, &source);
    tell_base(trainer);
    free(trainer->base_digests);
    trainer->base_digests = each;
    ZD_TRY(comm_agree(trainer->comm, status));
    status = zero_load(trainer->zero, &source, each);
    weights_close(&source);
    trainer->writer.base_digest = 0;
    for (int id = 0; each && id < table->count; id++)
        if (!table->params[id].trainable)
            trainer->writer.base_digest += each[id];
    return status;
}
