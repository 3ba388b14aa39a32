#include "offload_case.h"

#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"

#include <stdio.h>

void set(struct sets *sets, const char *text)
{
    snprintf(sets->text[sets->count], sizeof sets->text[0], "%s", text);
    sets->list[sets->count] = sets->text[sets->count];
    sets->list[++sets->count] = NULL;
}

void set_all(struct sets *sets, const char *const *texts)
{
    for (; texts && *texts; texts++)
        set(sets, *texts);
}

void set_common(struct sets *sets, const char *dtype)
{
    char text[64];
    static const char *const texts[] = {
            "train.max_steps=5",        "data.val_split=0.2",
            "eval.eval_strategy=steps", "eval.eval_steps=2",
            "eval.max_batches=1",       "checkpoint.save_strategy=steps",
            "checkpoint.save_steps=3",  NULL};
    *sets = (struct sets){0};
    set_all(sets, texts);
    snprintf(text, sizeof text, "train.dtype=%s", dtype);
    set(sets, text);
}

bool same_run(const char *a, const char *b, int world)
{
    char name[96];
    bool same = same_column(a, b, "loss", 0) &&
                same_column(a, b, "grad_norm", 0) &&
                same_column(a, b, "eval_loss", 0) && same_model(a, b);
    for (int r = 1; r <= world; r++) {
        snprintf(
                name, sizeof name,
                "checkpoint-000003/shard-%05d-of-%05d.safetensors", r, world);
        same = same && same_output(a, b, name);
    }
    return same;
}

bool as_planned(const char *dir)
{
    json_t *plan = plan_check_open(dir);
    bool ok =
            plan && plan_check_sent(plan, dir, STEPS) && plan_check_taken(plan);
    json_decref(plan);
    return ok;
}

const char *run(
        const char *job, const struct sets *common, const char *const *more,
        int world, bool *ran_out)
{
    struct sets sets = {0};
    const char *dir = job_threads_dir();
    set_all(&sets, common->list);
    set_all(&sets, more);
    *ran_out = job_threads_run(job, sets.list, world, dir) == ZD_OK;
    return dir;
}

void compare(
        const char *job, const struct sets *common, const char *const *layout,
        const char *const *offload, int world, const char *what)
{
    struct sets both = {0};
    bool ran, ran_too;
    set_all(&both, layout);
    set_all(&both, offload);
    const char *a = run(job, common, layout, world, &ran);
    const char *b = run(job, common, both.list, world, &ran_too);
    bool same = ran && ran_too && same_run(a, b, world);
    tap_ok(same, "world %d, %s: offloaded, the same bits", world, what);
    tap_ok(ran_too && as_planned(b), "world %d, %s: wire and memory as planned",
           world, what);
    fs_remove_tree(a);
    fs_remove_tree(b);
}
