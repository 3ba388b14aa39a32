/* test_freeze.c - checkpoints of a run with train.freeze: they hold what
 * trains, as planned, and go on and are exported over the base that the rest is
 * in, and over no other. */
#include "base/file/fs.h"
#include "tests/support/job_threads.h"
#include "tests/support/plan_check.h"
#include "tests/support/saved_state.h"
#include "train/checkpoint/cli.h"
#include "train/checkpoint/manifest.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL  "tests/fixtures/llama_odd/model"
#define FREEZE "train.freeze=[\"embed_tokens\",\"layers.0.\"]"
#define run(dir, world, ...)                                                   \
    job_runs(                                                                  \
            "tests/fixtures/llama_odd/job.toml", dir, world,                   \
            "train.max_steps=4 train.global_batch_size=12 "                    \
            "checkpoint.save_steps=2 optim.learning_rate=0.01 "                \
            "optim.warmup_steps=0 model.path=" MODEL                           \
            " train.dtype=bf16 " FREEZE " " __VA_ARGS__)
#define RESUME "run.resume=%s/out/checkpoint-000002 "

static bool same_run(const char *a, const char *b)
{
    return same_training(a, b, 4) && same_model(a, b);
}

static bool failed_with(const char *code)
{
    bool is = strcmp(zd_error_get()->code, code) == 0;
    if (!is)
        printf("# %s: %s\n", zd_error_get()->code, zd_error_get()->what);
    return is;
}

static const char *checkpoint_of(const char *dir, int step, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/out/checkpoint-%06d", dir, step);
    return out;
}

/* --- what is asked -------------------------------------------------------- */

/* Nothing of what is frozen, and all bytes that the plan told. */
static void holds_what_trains(const char *dir, int world)
{
    struct saved_state state = saved_state_of(dir, world, 4);
    size_t bytes = 0;
    bool ok = state.count > 0;
    for (int i = 0; i < state.count; i++) {
        bytes += state.arrays[i].used;
        ok &= !strstr(state.arrays[i].name, "embed_tokens") &&
              !strstr(state.arrays[i].name, "layers.0.");
    }
    saved_state_free(&state);
    json_t *plan = plan_check_open(dir);
    json_int_t told = json_integer_at(
            json_object_get(json_object_get(plan, "phases"), "save"), "disk");
    json_decref(plan);
    tap_ok(ok && told == (json_int_t)bytes,
           "world %d: what trains is saved, %zu bytes, %lld are told", world,
           bytes, told);
}

static void plans_are_true(void)
{
    for (int stage = 0; stage <= 3; stage += 3)
        for (int world = 1; world <= 3; world += 2) {
            const char *dir = job_threads_dir();
            bool ran = run(dir, world, "zero.stage=%d", stage);
            json_t *plan = ran ? plan_check_open(dir) : NULL;
            tap_ok(plan && plan_check_sent(plan, dir, 4) &&
                           plan_check_taken(plan),
                   "world %d stage %d: sent and taken as planned", world,
                   stage);
            json_decref(plan);
            holds_what_trains(dir, world);
        }
}

static void resumes(const char *whole, const char *cut)
{
    const char *moved = job_threads_dir();
    tap_ok(run(moved, 4,
               RESUME "zero.stage=3 run.stop_after=2 offload.optimizer=cpu "
                      "offload.params=cpu",
               cut) &&
                   same_saved_state(cut, 2, moved, 4, 2),
           "saved at 2 ranks, loaded at 4: the same bits");
    tap_ok(run(cut, 2, "zero.stage=2") && same_run(whole, cut),
           "cut after step 2, the rest has the same bits");
}

/* What was frozen may train; what has trained may not be lost. */
static void freezing_may_change(const char *cut)
{
    const char *first = job_threads_dir(), *second = job_threads_dir();
    static const char name[] = "master/model.embed_tokens.weight";
    tap_ok(run(first, 2, RESUME "train.freeze=[\"embed_tokens\"]", cut) &&
                   run(second, 1, RESUME "train.freeze=[]", cut),
           "more of it may train");
    struct saved_state state = saved_state_of(second, 1, 4);
    tap_ok(saved_array_of(&state, name, strlen(name))->used > 0,
           "and is saved then");
    saved_state_free(&state);
    tap_ok(!run(job_threads_dir(), 2,
                RESUME "train.freeze=[\"embed_tokens\",\"layers.0.\",\"norm\"]",
                cut) &&
                   failed_with("E0812"),
           "what has trained must train on");
}

/* --- what begins to train has its own t ------------------------------ */

static bool was_frozen(const char *name)
{
    return strstr(name, "embed_tokens") || strstr(name, "layers.0.");
}

static const float *values_of(
        struct saved_state *state, const char *kind, const char *tensor)
{
    char name[160];
    ZD_PRINT(name, "%s/%s", kind, tensor);
    return (const float *)(const void *)saved_array_of(
                   state, name, strlen(name))
            ->bytes;
}

/* How far the masters of `after` at `step` are from what PyTorch's AdamW makes
 * of those before it, which counts the steps of every parameter for itself:
 * what was frozen began to train after step 2. */
static double off_torch(
        const char *before, int world_before, const char *after, int world,
        int step)
{
    struct optim_options o = optim_options_default();
    struct saved_state x = saved_state_of(before, world_before, step - 1);
    struct saved_state y = saved_state_of(after, world, step);
    double most = y.count > 0 ? 0 : INFINITY;
    for (int i = 0; i < y.count; i++) {
        const char *name = y.arrays[i].name;
        if (strncmp(name, "master/", 7) != 0)
            continue;
        size_t count = y.arrays[i].used / sizeof(float);
        /* no array is added: pointers stay */
        const float *now = values_of(&y, "master", name + 7);
        const float *was = values_of(&x, "master", name + 7);
        const float *m = values_of(&y, "m", name + 7);
        const float *v = values_of(&y, "v", name + 7);
        int t = was_frozen(name) ? step - 2 : step;
        double c1 = 1 - pow(o.adam_beta1, t), c2 = 1 - pow(o.adam_beta2, t);
        for (size_t k = 0; k < count; k++) {
            double change = (double)m[k] / c1 /
                            (sqrt((double)v[k] / c2) + o.adam_epsilon);
            double off =
                    fabs((double)now[k] - ((double)was[k] - 0.01 * change));
            most = fmax(most, off);
        }
    }
    saved_state_free(&x);
    saved_state_free(&y);
    return most;
}

/* A t that no run of so many steps has, under a seal that is right again. */
static void a_t_beyond_the_steps_is_refused(const char *dir)
{
    char path[PATH_MAX], file[PATH_MAX + 32];
    json_t *manifest = NULL;
    bool ok = manifest_read(checkpoint_of(dir, 4, path), &manifest) == ZD_OK;
    json_t *steps =
            json_object_get(json_object_get(manifest, "optimizer"), "t");
    ok = ok && json_object_size(steps) > 0;
    if (ok)
        json_object_iter_set_new(
                steps, json_object_iter(steps), json_integer(5));
    json_object_del(manifest, "manifest_xxh3_128");
    ZD_PRINT(file, "%s/" CHECKPOINT_MANIFEST, path);
    manifest_seal(manifest);
    ok = ok && json_write_file(file, manifest) == ZD_OK;
    json_decref(manifest);
    tap_ok(ok && !run(dir, 3, "train.freeze=[] train.max_steps=5") &&
                   failed_with("E0802"),
           "t = 5 after 4 steps is refused");
}

static void steps_are_the_tensors_own(const char *cut)
{
    const char *begun = job_threads_dir(), *tiers[] = {"none", "cpu", "nvme"};
#define BEGUN                                                                  \
    "train.freeze=[] optim.lr_scheduler_type=constant optim.weight_decay=0.0 "
    bool ran = run(begun, 2, BEGUN RESUME "run.stop_after=2", cut);
    for (int i = 0; i < 3; i++) {
        const char *dir = job_threads_dir();
        char tier[PATH_MAX + 64];
        ZD_PRINT(
                tier, "offload.optimizer=%s offload.nvme_path=%s", tiers[i],
                begun);
        ran = ran && run(dir, 2, BEGUN RESUME "run.stop_after=3 %s", cut, tier);
        double first = ran ? off_torch(begun, 2, dir, 2, 3) : INFINITY;
        ran = ran && run(dir, i + 1, BEGUN "run.resume=auto %s", tier);
        double second = ran ? off_torch(dir, 2, dir, i + 1, 4) : INFINITY;
        tap_ok(first < 1e-6 && second < 1e-6,
               "states on %s: as PyTorch's AdamW to %.2g, resumed at %d "
               "ranks %.2g",
               tiers[i], first, i + 1, second);
        if (i == 2)
            a_t_beyond_the_steps_is_refused(dir);
    }
}

static void another_base_is_refused(const char *cut)
{
    tap_ok(!run(cut, 2, "model.init=random zero.stage=2 train.max_steps=6") &&
                   failed_with("E0327"),
           "it does not go on over another base");
}

static void exports(const char *whole, const char *base)
{
    char path[PATH_MAX], out[PATH_MAX];
    const char *random = job_threads_dir();
    ZD_PRINT(out, "%s/out/again", whole);
    struct train_export export = {
            .path = checkpoint_of(whole, 4, path), .out_dir = out};
    bool exported = train_export(&export) == ZD_OK;
    char again[PATH_MAX], once[PATH_MAX];
    fs_join(again, sizeof again, out, "model.safetensors");
    fs_join(once, sizeof once, whole, "out/hf/model.safetensors");
    tap_ok(exported && same_file(again, once),
           "export of a checkpoint is what the run exported");
    export.base = base;
    ZD_PRINT(out, "%s/out/other", whole);
    tap_ok(train_export(&export) == ZD_ERR_DATA && failed_with("E0327"),
           "it is not exported with another base");
    bool ran = run(random, 1, "model.init=random");
    export = (struct train_export){
            .path = checkpoint_of(random, 4, path), .out_dir = out};
    tap_ok(ran && train_export(&export) == ZD_OK,
           "a random base comes from its seed");
}

int main(void)
{
    const char *whole = job_threads_dir(), *cut = job_threads_dir();
    const char *base = job_threads_dir();
    char other[PATH_MAX];
    tap_ok(run(whole, 2, "zero.stage=2") &&
                   run(cut, 2, "zero.stage=2 run.stop_after=2") &&
                   run(base, 2, "train.freeze=[]"),
           "the runs");
    ZD_PRINT(other, "%s/out/hf", base);
    exports(whole, other);
    freezing_may_change(cut);
    steps_are_the_tensors_own(cut);
    resumes(whole, cut);
    another_base_is_refused(cut);
    plans_are_true();
    return tap_done();
}
