#include "train/job/options.h"

#include "base/file/fs.h"
#include "optim/optimizers.h"

#include <string.h>

struct train_job train_job_default(void)
{
    return (struct train_job){
            .job = {.output_mode = 0750, .seed = 42, .data_seed = 42},
            .run = {.resume = RESUME_AUTO,
                    .on_sigterm = ON_SIGNAL_CHECKPOINT_AND_EXIT,
                    .on_sigusr1 = ON_SIGNAL_CHECKPOINT_AND_EXIT,
                    .on_sigusr2 = ON_SIGNAL_CHECKPOINT},
            .device = device_options_default(),
            .model = {.init = MODEL_PRETRAINED, .dtype = -1},
            .lora = lora_options_default(),
            .data = data_options_default(),
            .train =
                    {.max_steps = -1,
                     .num_train_epochs = 3.0,
                     .dtype = DTYPE_BF16,
                     .gradient_checkpointing = {.mode = CHECKPOINTING_AUTO},
                     .average_tokens_across_devices = true,
                     .fp16 =
                             {.initial_scale_power = 16,
                              .loss_scale_window = 1000,
                              .hysteresis = 2,
                              .min_loss_scale = 1}},
            .optim = optim_options_default(),
            .parallel = {.replicate = 1, .shard = -1, .cp = 1, .tp = 1},
            .zero = zero_options_default(),
            .offload = offload_options_default(),
            .comm =
                    {.backend = COMM_AUTO,
                     .timeout = COMM_TIMEOUT_AUTO,
                     .files_timeout = 60,
                     .max_ctas = COMM_CTAS_AUTO},
            .eval =
                    {.eval_strategy = EVAL_STEPS,
                     .eval_steps = 200,
                     .per_device_eval_batch_size = 8,
                     .max_batches = 50,
                     .eval_on_start = true},
            .sample =
                    {.steps = 200,
                     .max_new_tokens = 64,
                     .temperature = 0.8,
                     .top_p = 0.95},
            .checkpoint =
                    {.save_strategy = SAVE_STEPS,
                     .save_steps = 500,
                     .save_every_seconds = 1800,
                     .save_total_limit = 3,
                     .verify = true,
                     .async_save = true,
                     .metric_for_best_model = BEST_EVAL_LOSS,
                     .export = EXPORT_HF,
                     .max_shard_bytes = 5000000000u},
            .guard = {.nan = GUARD_SKIP},
            .log = {.level = ZD_LOG_INFO,
                    .logging_steps = 10,
                    .logging_first_step = true,
                    .progress = PROGRESS_AUTO,
                    .rank_logs = RANK_LOGS_FILES},
            .report =
                    {.tensorboard = true, .trainer_state = true, .html = true},
            .control = {.socket = CONTROL_AUTO},
    };
}

bool train_counts_samples(const struct train_job *job)
{
    return job->train.max_steps <= 0 || job->eval.eval_strategy == EVAL_EPOCH ||
           job->checkpoint.save_strategy == SAVE_EPOCH;
}

const char *train_stored_base(const struct train_job *job)
{
    bool is_random = job->model.config || job->model.init == MODEL_RANDOM;
    return is_random ? NULL : job->model.path;
}

const char *train_tokenizer(const struct train_job *job)
{
    const char *named = job->model.tokenizer, *dir = job->model.path;
    if (named && named[0])
        return strcmp(named, "bytes") == 0 ? NULL : named;
    return dir && fs_exists(fs_in(dir, "tokenizer.json").text) ? dir : NULL;
}

const char *train_optimizer_name(enum optim_name name)
{
    return optimizer_of(name)->name;
}
