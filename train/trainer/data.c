/* data.c - the data of a run, opened on all ranks. */
#include "base/must.h"
#include "comm/topology.h"
#include "train/trainer/trainer.h"

#include <stdlib.h>

static struct dataset_request request_of(
        const struct trainer *trainer, bool eval)
{
    struct dataset_request request = text_request(
            trainer->job, &trainer->text, trainer->plan.config.vocab_size,
            eval);
    request.template_date = trainer->template_date;
    request.may_grow = !eval && !train_counts_samples(trainer->job);
    return request;
}

/* One rank of each host fills the cache: rank 0 before the others, which find
 * it filled where hosts share the folder. */
static enum zd_status fill_cache(
        struct trainer *trainer, const struct dataset_request *request)
{
    struct comm *comm = trainer->comm;
    bool is_first = comm_rank(comm) == 0;
    enum zd_status status = is_first ? dataset_prepare(request) : ZD_OK;
    ZD_TRY(comm_agree(comm, status));
    if (!is_first && comm_local_rank(comm) == 0)
        status = dataset_prepare(request);
    return comm_agree(comm, status);
}

/* Text that grows: one rank of each host begins, and the others learn by which
 * names they find it. The caller frees *names_out. */
static enum zd_status begin_growth(
        struct trainer *trainer, struct dataset_request *request,
        struct dataset **out, void **names_out)
{
    struct comm *comm = trainer->comm;
    size_t bytes = (size_t)request->entry_count * DATASET_GROWTH;
    char *names = zd_array(bytes, 1);
    enum zd_status status = ZD_OK;
    if (comm_local_rank(comm) == 0)
        status = dataset_open(request, out);
    if (status == ZD_OK && comm_local_rank(comm) == 0)
        dataset_growth(*out, names);
    status = comm_agree(comm, status);
    if (status == ZD_OK)
        status = comm_gather_new(comm, names, bytes, names_out);
    free(names);
    int first = comm_topology(comm)->ranks[comm_rank(comm)].first;
    request->growth = (const char *)*names_out + (size_t)first * bytes;
    return status;
}

/* Then all map it, or read it while it grows, and one rank of each host reads
 * it whole beside the training. */
static enum zd_status open_dataset(
        struct trainer *trainer, bool eval, struct dataset **out)
{
    struct comm *comm = trainer->comm;
    struct dataset_request request = request_of(trainer, eval);
    enum zd_status status = ZD_OK;
    void *names = NULL;
    ZD_TRY(fill_cache(trainer, &request));
    if (request.may_grow)
        ZD_TRY(begin_growth(trainer, &request, out, &names));
    if (!request.may_grow || comm_local_rank(comm) != 0)
        status = dataset_open(&request, out);
    free(names);
    if (status == ZD_OK && comm_local_rank(trainer->comm) == 0)
        dataset_check_begin(*out);
    return comm_agree(trainer->comm, status);
}

enum zd_status trainer_open_eval(struct trainer *trainer)
{
    if (trainer->eval_data || !trainer->plan.shape.eval_B)
        return ZD_OK;
    return open_dataset(trainer, true, &trainer->eval_data);
}

enum zd_status trainer_open_data(struct trainer *trainer)
{
    struct dataset_request request = request_of(trainer, false);
    ZD_TRY(open_dataset(trainer, false, &trainer->train_data));
    if (trainer_is_first(trainer))
        dataset_tell_template(trainer->train_data, &request, true);
    if (trainer->job->eval.eval_strategy != EVAL_NO)
        ZD_TRY(trainer_open_eval(trainer));
    return ZD_OK;
}
