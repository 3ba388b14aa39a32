/* test_kept.c - the folder of a model that goes while the run goes on: every
 * checkpoint and the export have what was in it before step 1. */
#include "tests/support/job_threads.h"

#include "base/file/fs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
        "config.json",         "generation_config.json",
        "tokenizer.json",      "tokenizer_config.json",
        "tokenizer.model",     "chat_template.json",
        "chat_template.jinja", NULL};

static void shell(const char *format, const char *dir)
{
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, format, dir, dir, dir);
    if (system(command) != 0)
        abort();
}

static void take_away(void *ctx, const struct train_step_report *report)
{
    if (report->step == 1)
        shell("mv %s/model %s/gone", ctx);
}

static bool same_file(
        const char *dir, const char *a, const char *b, const char *name)
{
    char first[PATH_MAX], second[PATH_MAX], *x = NULL, *y = NULL;
    size_t x_bytes, y_bytes;
    snprintf(first, sizeof first, "%s/%s/%s", dir, a, name);
    snprintf(second, sizeof second, "%s/%s/%s", dir, b, name);
    bool same = fs_read_file(first, 1 << 26, &x, &x_bytes) == ZD_OK &&
                fs_read_file(second, 1 << 26, &y, &y_bytes) == ZD_OK &&
                x_bytes == y_bytes && memcmp(x, y, x_bytes) == 0;
    zd_error_clear();
    free(x);
    free(y);
    return same;
}

int main(void)
{
    char dir[PATH_MAX];
    strcpy(dir, job_threads_dir());
    shell("cp -r tests/fixtures/llama/model %s/model; "
          "echo pieces >%s/model/tokenizer.model; echo '{\"chat_template\": "
          "\"\"}' >%s/model/chat_template.json",
          dir);
    struct train_observer observer = {.ctx = dir, .step = take_away};
    bool ran = job_runs_observed(
            "tests/fixtures/llama/job.toml", dir, 2, &observer,
            "model.path=%s/model train.max_steps=3 checkpoint.save_steps=2 "
            "checkpoint.export=hf",
            dir);
    tap_ok(ran, "the run ends well: %s", zd_error_get()->what);
    for (int i = 0; names[i]; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/gone/%s", dir, names[i]);
        if (!fs_exists(path))
            continue;
        tap_ok(same_file(dir, "gone", "out/checkpoint-000003", names[i]),
               "checkpoint 3 has %s", names[i]);
        tap_ok(i == 0 || same_file(dir, "gone", "out/hf", names[i]),
               "the export has %s", names[i]);
    }
    return tap_done();
}
