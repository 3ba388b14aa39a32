/* data.c - opens the data of a run on all ranks. */
#include "base/file/hash.h"
#include "comm/topology.h"
#include "train/trainer/trainer.h"

#include <stdio.h>
#include <string.h>

enum { GROWTH_NAME = 40 };

static struct dataset_request request_of(
        const struct trainer *trainer, bool eval)
{
    struct dataset_request request = text_request(
            trainer->job, &trainer->text, trainer->plan.config.vocab_size,
            eval);
    request.template_date = trainer->ahead.date;
    return request;
}

/* A name after the first rank of the host, which begins. */
static void name_growth(struct comm *comm, char name[GROWTH_NAME])
{
    const struct topology_rank *ranks = comm_topology(comm)->ranks;
    const struct topology_rank *first = &ranks[ranks[comm_rank(comm)].first];
    snprintf(
            name, GROWTH_NAME, "%016llx-%d",
            (unsigned long long)hash_64(first->host, strlen(first->host), 0),
            first->pid);
}

/* Rank 0 fills the cache, or begins to; then the first rank of each other host,
 * which finds it filled if hosts share the folder. All others open it. During
 * training the first rank of each host reads the cache to its end. */
static enum zd_status open_dataset(
        struct trainer *trainer, bool eval, struct dataset **out)
{
    enum { TURNS = 3 };
    struct comm *comm = trainer->comm;
    struct dataset_request request = request_of(trainer, eval);
    bool is_first = comm_local_rank(comm) == 0;
    int mine = comm_rank(comm) == 0 ? 0 : is_first ? 1 : 2;
    char name[GROWTH_NAME];
    name_growth(comm, name);
    if (!eval && !train_counts_samples(trainer->job))
        request.growth = name;
    request.waits = eval ? NULL : trainer->plan.tokenizer_waits;
    request.begins_growth = is_first;
    request.depth = is_first ? DATA_CHECK : DATA_TRUST;
    for (int turn = 0; turn < TURNS; turn++) {
        enum zd_status status = ZD_OK;
        if (turn == mine)
            status = dataset_open(&request, out);
        ZD_TRY(comm_agree(comm, status));
    }
    if (is_first)
        dataset_check_begin(*out);
    return ZD_OK;
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
