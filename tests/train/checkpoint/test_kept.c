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

static bool has_same(const char *dir, const char *place, const char *name)
{
    char first[PATH_MAX], second[PATH_MAX];
    snprintf(first, sizeof first, "%s/gone/%s", dir, name);
    snprintf(second, sizeof second, "%s/%s/%s", dir, place, name);
    return same_file(first, second);
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
        tap_ok(has_same(dir, "out/checkpoint-000003", names[i]),
               "checkpoint 3 has %s", names[i]);
        tap_ok(i == 0 || has_same(dir, "out/hf", names[i]), "the export has %s",
               names[i]);
    }
    return tap_done();
}
