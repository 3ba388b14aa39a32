/* test_offload_nvme.c - a whole job with its states and parameters in a file:
 * the same bits as without, and nothing left on the disk. */
#include "base/file/fs.h"
#include "offload_case.h"
#include "tests/support/job_threads.h"

#include <dirent.h>
#include <stdio.h>

struct nvme_case {
    const char *job, *dtype;
    int world;
    const char *layout[4], *offload[6];
};

static const struct nvme_case nvme_cases[] = {
        {LLAMA,
         "fp32",
         1,
         {"optim.name=adamw"},
         {"offload.params=nvme", "aio.backend=threads",
          "offload.chunk_bytes=2048", "aio.block_size=4096"}},
        {LLAMA,
         "bf16",
         2,
         {"zero.stage=1", "train.per_device_train_batch_size=4"},
         {"offload.accumulate=device", "offload.threads=3"}},
        {GPT2,
         "bf16",
         2,
         {"zero.stage=3", "optim.name=adamw_8bit"},
         {"offload.params=nvme", "offload.chunk_bytes=4096",
          "aio.single_submit=true"}},
        {GPT2,
         "fp16",
         3,
         {"zero.stage=2", "train.per_device_train_batch_size=2",
          "optim.name=adamw_8bit"},
         {"offload.accumulate=host", "aio.overlap_events=false",
          "device.streams=inline"}},
        {LLAMA,
         "bf16",
         2,
         {"zero.stage=3", "train.per_device_train_batch_size=4",
          "optim.name=adam_mini_8bit"},
         {"offload.params=nvme", "offload.accumulate=host",
          "offload.chunk_bytes=4096", "device.streams=threads"}},
        {LLAMA,
         "fp32",
         2,
         {"zero.stage=3"},
         {"offload.params=cpu", "offload.threads=2", "aio.queue_depth=1"}},
};

static int entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count - 2; /* . and .. */
}

static void nvme_agrees(void)
{
    const char *disk = job_threads_dir();
    for (size_t i = 0; i < sizeof nvme_cases / sizeof nvme_cases[0]; i++) {
        const struct nvme_case *c = &nvme_cases[i];
        struct sets common, offload = {0};
        char text[PATH_MAX], what[32];
        snprintf(text, sizeof text, "offload.nvme_path=%s", disk);
        snprintf(what, sizeof what, "NVMe %zu", i + 1);
        set_common(&common, c->dtype);
        set(&offload, "offload.optimizer=nvme");
        set(&offload, text);
        set_all(&offload, c->offload);
        compare(c->job, &common, c->layout, offload.list, c->world, what);
    }
    tap_ok(entries(disk) == 0, "nothing is left on the disk");
    fs_remove_tree(disk);
}

int main(void)
{
    nvme_agrees();
    return tap_done();
}
