/* job_offload.c - [offload]: settings that need one another. */
#include "daemon/job_internal.h"

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

static void check_activations(struct job *job)
{
    const struct train_job *options = &job->options;
    if (options->offload.activations == OFFLOAD_NONE ||
        options->train.gradient_checkpointing.mode != CHECKPOINTING_NONE ||
        !job_is_sound(job, "train", "gradient_checkpointing"))
        return;
    tell(job, "E0213", "activations",
         "offload.activations = \"cpu\" keeps on the host what layers are "
         "computed again from, and with train.gradient_checkpointing = "
         "\"none\" no layer is");
    problem_help(&job->problems, "train.gradient_checkpointing = \"full\"");
}

/* --- keys that only an optimizer on the host listens to ------------------- */

/* nvme_path and [aio] tell of the machine and may stand in a job that does not
 * use them. */
static const char *const idle_keys[] = {
        "chunk_bytes", "threads", "clipping", "accumulate"};
enum { IDLE_KEYS = sizeof idle_keys / sizeof idle_keys[0] };

static bool is_idle(const struct job *job, int i)
{
    bool is_used = i == 0 && job->options.optim.paged; /* in chunks too */
    return job->options.offload.optimizer == OFFLOAD_NONE && !is_used;
}

void job_settle_offload(struct job *job)
{
    for (int i = 0; i < IDLE_KEYS; i++)
        if (is_idle(job, i))
            job_leave_out(
                    job, "offload", idle_keys[i],
                    "not used without offload.optimizer");
}

static void check_idle(struct job *job)
{
    if (!job_is_sound(job, "offload", "optimizer"))
        return;
    for (int i = 0; i < IDLE_KEYS; i++) {
        if (!is_idle(job, i) || !job_is_given(job, "offload", idle_keys[i]))
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
    check_activations(job);
    check_idle(job);
}
