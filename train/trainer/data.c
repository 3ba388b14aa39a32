/* data.c - the data of a run, opened on all ranks. */
#include "train/trainer/trainer.h"

static struct dataset_request request_of(
        const struct trainer *trainer, bool eval)
{
    const struct data_options *data = &trainer->job->data;
    bool split = data->eval_count == 0 && data->val_split > 0;
    bool from_train = !eval || split;
    return (struct dataset_request){
            .options = data,
            .entries = from_train ? data->train : data->eval,
            .entry_count = from_train ? data->train_count : data->eval_count,
            .tokenizer = trainer->text.tokenizer,
            .eos = trainer->text.eos,
            .vocab_size = trainer->plan.config.vocab_size,
            .data_seed = trainer->job->job.data_seed,
            .shuffle = eval ? false : data->shuffle,
            .from = eval && split ? 1.0 - data->val_split : 0.0,
            .to = !eval && split ? 1.0 - data->val_split : 1.0,
    };
}

/* One rank of each host fills the cache, then all map it. */
static enum zd_status open_dataset(
        struct trainer *trainer, bool eval, struct dataset **out)
{
    struct dataset_request request = request_of(trainer, eval);
    enum zd_status status = ZD_OK;
    if (comm_local_rank(trainer->comm) == 0)
        status = dataset_prepare(&request);
    ZD_TRY(comm_agree(trainer->comm, status));
    status = dataset_open(&request, out);
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
        dataset_compare_template(trainer->train_data, &request);
    if (trainer->job->eval.eval_strategy != EVAL_NO)
        ZD_TRY(trainer_open_eval(trainer));
    return ZD_OK;
}
