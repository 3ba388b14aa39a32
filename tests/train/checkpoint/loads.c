/* loads.c - what a run would go on from: of each folder named on a line of
 * stdin, which is removed, a line of JSON. For tests/support/crash_states.py.
 */
#include "base/file/fs.h"
#include "base/log.h"
#include "base/must.h"
#include "train/checkpoint/checkpoint.h"
#include "train/run.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Those that have a name, and are not whole. */
static int count_damaged(const char *dir)
{
    ZD_FREED int64_t *steps = NULL;
    int count, damaged = 0;
    if (checkpoint_list(dir, &steps, &count) != ZD_OK)
        return -1;
    for (int i = 0; i < count; i++) {
        struct checkpoint *open;
        char name[64], path[PATH_MAX];
        checkpoint_name(name, sizeof name, steps[i]);
        fs_join(path, sizeof path, dir, name);
        if (checkpoint_open(path, CHECKPOINT_DIGESTS, &open) == ZD_OK)
            checkpoint_close(open);
        else
            damaged++;
        zd_error_clear();
    }
    return damaged;
}

static void judge(struct comm *comm, const char *dir)
{
    char path[PATH_MAX], digest[HASH_HEX];
    struct train_job job = train_job_default();
    int damaged = count_damaged(dir);
    job.job.output_dir = dir;
    job.run.resume = RESUME_AUTO;
    job.device.cpu_threads = 1;
    enum zd_status status = checkpoint_sweep(dir);
    ZD_THEN(status, choose_checkpoint(comm, &job, path, digest));
    const char *name = status == ZD_OK ? strrchr(path, '-') : NULL;
    json_auto_t *verdict = json_pack(
            "{s:i, s:i, s:s}", "step", name ? atoi(name + 1) : -1, "damaged",
            damaged, "error", status == ZD_OK ? "" : zd_error_get()->what);
    ZD_FREED char *text = json_dumps(verdict, JSON_COMPACT);
    zd_error_clear();
    if (fs_remove_tree(dir) != ZD_OK)
        abort();
    printf("%s\n", text);
    fflush(stdout);
}

int main(void)
{
    char line[PATH_MAX];
    struct comm *comm;
    struct train_job job = train_job_default();
    struct zd_log_options quiet = {.level = ZD_LOG_ERROR, .rank = 0};
    zd_log_configure(&quiet);
    if (comm_local_create(1, &job.comm, &comm) != ZD_OK)
        return 70;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        judge(comm, line);
    }
    comm_destroy(comm);
    return 0;
}
