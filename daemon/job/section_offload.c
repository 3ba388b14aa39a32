/* section_offload.c - [offload]: settings that need one another. */
#include "daemon/job/job_internal.h"

#include "optim/optimizers.h"

static void tell(
        struct job *job, const char *code, const char *key, const char *what)
{
    problem_add(
            &job->problems, ZD_ERR_CONFIG, code, job_place(job, "offload", key),
            NULL, "%s", what);
}

/* The plan refuses these too, but cannot tell the line. */
static void check_tiers(struct job *job)
{
    const struct offload_options *offload = &job->options.offload;
    bool has_path = offload->nvme_path && *offload->nvme_path;
    if (!job_is_sound(job, "offload", "optimizer"))
        return;
    if (offload->params == OFFLOAD_CPU && offload->optimizer == OFFLOAD_NONE) {
        tell(job, "E0660", "params",
             "offload.params needs the optimizer on the host too: parameters "
             "come from its master weights");
        problem_help(&job->problems, "optimizer = \"cpu\" in [offload]");
    }
    if (offload->params == OFFLOAD_NVME && offload->optimizer != OFFLOAD_NVME) {
        tell(job, "E0651", "params",
             "offload.params = \"nvme\" keeps parameters in the file of the "
             "optimizer states, which are not on NVMe");
        problem_help(
                &job->problems,
                "set offload.optimizer = \"nvme\" or offload.params = "
                "\"cpu\"");
    }
    if (offload->optimizer == OFFLOAD_NVME && !has_path &&
        job_is_sound(job, "offload", "nvme_path")) {
        tell(job, "E0655", "optimizer",
             "offload.optimizer = \"nvme\" needs a folder for its file");
        problem_help(
                &job->problems,
                "nvme_path = \"/path/on/a/fast/disk\" in [offload]");
    }
}

/* An update that could be taken back needs its old states, and the norm of
 * nothing. */
static void check_clipping(struct job *job)
{
    const struct train_job *options = &job->options;
    enum offload_tier tier = options->offload.optimizer;
    const char *why =
            tier == OFFLOAD_NVME
                    ? "offload.clipping = \"undo\" has no old states to go "
                      "back to when they are streamed from NVMe"
                    : "offload.clipping = \"undo\" cannot update before the "
                      "norm is known with Adam-mini, which divides by block "
                      "sums";
    if (options->offload.clipping != OFFLOAD_CLIP_UNDO ||
        !job_is_sound(job, "offload", "optimizer") ||
        !job_is_sound(job, "optim", "name"))
        return;
    bool has_sums =
            optimizer_needs(options->optim.name) == OPTIM_NEEDS_BLOCK_SUMS;
    if (tier == OFFLOAD_NVME || (tier == OFFLOAD_CPU && has_sums)) {
        tell(job, "E0650", "clipping", why);
        problem_help(&job->problems, "clipping = \"wait\" in [offload]");
    }
}

/* What depends on how many ranks there are; nothing when that is not known. */
static void check_ranks(struct job *job)
{
    const struct train_job *options = &job->options;
    const struct offload_options *offload = &options->offload;
    int stage = options->zero.stage;
    if (job->world < 2 || offload->optimizer == OFFLOAD_NONE ||
        !job_is_sound(job, "offload", "optimizer") ||
        !job_is_sound(job, "zero", "stage"))
        return;
    if (offload->params != OFFLOAD_NONE && stage < 3) {
        tell(job, "E0661", "params",
             job_string(
                     job,
                     "offload.params with several ranks needs zero.stage = 3: "
                     "at stage %d every rank keeps all parameters",
                     stage));
        problem_help(&job->problems, "zero.stage = 3");
    }
    if (offload->accumulate == OFFLOAD_ACCUMULATE_HOST && stage == 0 &&
        job->accumulation > 1) {
        tell(job, "E0662", "accumulate",
             "offload.accumulate = \"host\" with several ranks needs "
             "zero.stage = 1 or more: at stage 0 every rank keeps all "
             "gradients on the device");
        problem_help(
                &job->problems,
                "zero.stage = 1, or offload.accumulate = \"device\"");
    }
}

static void check_activations(struct job *job)
{
    const struct train_job *options = &job->options;
    if (options->offload.activations == OFFLOAD_NONE ||
        (options->train.gradient_checkpointing.mode != CHECKPOINTING_NONE &&
         options->train.gradient_checkpointing.mode !=
                 CHECKPOINTING_SELECTIVE) ||
        !job_is_sound(job, "train", "gradient_checkpointing"))
        return;
    tell(job, "E0213", "activations",
         "offload.activations = \"cpu\" keeps on the host what layers are "
         "computed again from, and with train.gradient_checkpointing = "
         "\"none\" or \"selective\" no layer is");
    problem_help(&job->problems, "train.gradient_checkpointing = \"full\"");
}

/* --- keys that only an optimizer on the host listens to ------------------- */

/* nvme_path, [aio] and chunk_bytes (of paged states too) tell of the machine
 * and may stand in a job that does not use them. */
static const char *const idle_keys[] = {
        "threads", "clipping", "accumulate", "pin_memory"};
enum { IDLE_KEYS = sizeof idle_keys / sizeof idle_keys[0] };

void job_settle_offload(struct job *job)
{
    if (job->options.offload.optimizer != OFFLOAD_NONE)
        return;
    for (int i = 0; i < IDLE_KEYS; i++)
        job_leave_out(
                job, "offload", idle_keys[i],
                "not used without offload.optimizer");
}

static void check_idle(struct job *job)
{
    if (!job_is_sound(job, "offload", "optimizer") ||
        job->options.offload.optimizer != OFFLOAD_NONE)
        return;
    for (int i = 0; i < IDLE_KEYS; i++) {
        if (!job_is_given(job, "offload", idle_keys[i]))
            continue;
        tell(job, "E0213", idle_keys[i],
             job_string(
                     job,
                     "`%s` means nothing while offload.optimizer is \"none\"",
                     idle_keys[i]));
        problem_help(
                &job->problems,
                "offload.optimizer = \"cpu\", or remove this line");
    }
}

void job_check_offload(struct job *job)
{
    check_tiers(job);
    check_clipping(job);
    check_ranks(job);
    check_activations(job);
    check_idle(job);
}
