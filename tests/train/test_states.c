/* test_states.c - whole trainings with every optimizer and format: checkpoints
 * carry every state between worlds and stages. That these agree for each is in
 * tests/zero/test_states.c. */
#include "base/must.h"
#include "optim/optim.h"
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"

#include <stdlib.h>
#include <string.h>

static const char *job = "tests/train/states.toml";
enum { STEPS = 6, CUT = 3 };
enum { BYTES_MAX = 1 << 23 };

struct variant {
    const char *name, *sets;
};

static const struct variant variants[] = {
#define VARIANT_true(word)
#define VARIANT_false(word)                    {word, "optim.name=" word},
#define OPTIM_WORD(word, ID, states, is_paged) VARIANT_##is_paged(word)
#include "optim/optimizers.inc"
        {"adamw in bf16", "optim.name=adamw optim.state_dtype=bf16"},
        {"adamw_8bit without masters",
         "optim.name=adamw_8bit optim.master=none train.dtype=bf16"},
        {"sgd with momentum", "optim.name=sgd optim.momentum=0.9"},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

#define run(dir, world, ...) job_runs(job, dir, world, __VA_ARGS__)

/* --- checkpoints ---------------------------------------------------------- */

static const char device[] = "offload.optimizer=none";
static const char host[] = "offload.optimizer=cpu";

/* An even number of ranks replicates shards. */
static const char *tier_of(int world, bool on_host)
{
    static const char *const replicated[] = {
            "offload.optimizer=none parallel.dp_replicate_size=2",
            "offload.optimizer=cpu parallel.dp_replicate_size=2"};
    return world % 2 == 0 ? replicated[on_host] : on_host ? host : device;
}

static const char *saved_at(
        const struct variant *v, int world, int stage, const char *tier)
{
    const char *dir = job_threads_dir();
    bool ran =
            run(dir, world, "%s %s zero.stage=%d run.stop_after=3", v->sets,
                tier, stage);
    return ran ? dir : NULL;
}

/* Load what `from` saved at the cut into another folder, and save at once. */
static const char *moved_to(
        const char *from, const struct variant *v, int world, int stage,
        const char *tier)
{
    const char *dir = job_threads_dir();
    bool ran = from && run(dir, world,
                           "%s %s zero.stage=%d run.stop_after=3 "
                           "run.resume=%s/out/checkpoint-000003",
                           v->sets, tier, stage, from);
    return ran ? dir : NULL;
}

/* An optimizer saves the arrays it has and no other: sgd weights alone, and
 * Adam-mini a v by element of biases only, of which this model has none. */
static bool has_its_arrays(const struct variant *v, const char *dir, int world)
{
    static const struct {
        const char *kind, *names[2]; /* parts of the names that have it */
    } kinds[] = {
            {"m/", {"adam", "lion"}},
            {"v/", {"adamw", NULL}},
            {"m_scale/", {"_8bit", NULL}},
            {"v_scale/", {"adamw_8bit", NULL}},
            {"v_blocks/", {"adam_mini", NULL}}};
    struct saved_state state = saved_state_of(dir, world, CUT);
    bool ok = true;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        bool found = false, wanted = strstr(v->name, "momentum") && k == 0;
        for (int i = 0; i < state.count; i++)
            found |= strncmp(state.arrays[i].name, kinds[k].kind,
                             strlen(kinds[k].kind)) == 0;
        for (int n = 0; n < 2 && kinds[k].names[n]; n++)
            wanted |= strstr(v->name, kinds[k].names[n]) != NULL;
        ok = ok && found == wanted;
    }
    saved_state_free(&state);
    return ok;
}

static void states_move(const struct variant *v, int turn)
{
    for (int a = 1; a <= 4; a++) {
        int b = (a + turn % 3) % 4 + 1;
        const char *was = tier_of(a, (a + turn) % 2 == 0);
        const char *is = tier_of(b, a <= 2);
        const char *from = saved_at(v, a, a - 1, was);
        const char *to = moved_to(from, v, b, (b + turn) % 4, is);
        if (a == 1)
            tap_ok(from && has_its_arrays(v, from, a),
                   "%s: its arrays and no other", v->name);
        tap_ok(to && same_saved_state(from, a, to, b, CUT),
               "%s: saved at %d ranks (%s), loaded at %d (%s): the same bits",
               v->name, a, was, b, is);
    }
}

static void resumes(const struct variant *v, int world, int stage)
{
    const char *whole = job_threads_dir();
    const char *cut = saved_at(v, world, stage, device);
    int then = (stage + 1) % 4;
    tap_ok(cut && run(whole, world, "%s zero.stage=%d", v->sets, then) &&
                   run(cut, world, "%s zero.stage=%d", v->sets, then) &&
                   same_column(whole, cut, "loss", STEPS),
           "%s: a resumed run has the unbroken one's bits at stages %d, %d",
           v->name, stage, then);
}

/* Tensors that pass in several parts. */
static void long_tensors_move(void)
{
    static const struct variant v = {
            "long tensors",
            "optim.name=adamw_8bit optim.stable_embedding=false"};
    const char *small = job;
    job = "tests/train/long.toml";
    const char *from = saved_at(&v, 1, 0, device);
    const char *through = moved_to(from, &v, 3, 2, host);
    const char *to = moved_to(through, &v, 2, 0, device);
    tap_ok(to && same_saved_state(from, 1, through, 3, CUT) &&
                   same_saved_state(from, 1, to, 2, CUT),
           "tensors longer than the buffers: the same bits");
    resumes(&v, 1, 0);
    job = small;
}

/* --- other formats -------------------------------------------------------- */

static const struct variant *find(const char *name)
{
    for (int i = 0; i < VARIANTS; i++)
        if (strcmp(variants[i].name, name) == 0)
            return &variants[i];
    return NULL;
}

/* Every lane of `to` is that of `from` read and written in its own format. */
static bool converted(const char *from, const char *to, int world, int *changed)
{
    struct saved_state x = saved_state_of(from, 2, CUT),
                       y = saved_state_of(to, world, CUT);
    bool same = true;
    float *wide = calloc(BYTES_MAX, 1), *scales = calloc(BYTES_MAX, 1);
    ZD_FREED void *values = calloc(BYTES_MAX, 1);
    for (int i = 0; i < y.count; i++) {
        struct saved_array *q = &y.arrays[i];
        struct saved_array *p = saved_array_of(&x, q->name, strlen(q->name));
        enum optim_lane lane = q->name[0] == 'm' ? OPTIM_M : OPTIM_V;
        char scale_name[200];
        bool narrow = strcmp(q->type, "U8") == 0;
        bool narrowed = strcmp(p->type, "U8") == 0;
        size_t count = narrow ? q->used : q->used / 4;
        if (q->name[1] != '/')
            continue;
        ZD_PRINT(scale_name, "%c_scale%s", q->name[0], q->name + 1);
        *changed += narrow != narrowed;
        optim_lane_read(
                lane, narrowed ? OPTIM_8BIT : OPTIM_FP32, p->bytes,
                narrowed ? (float *)saved_array_of(
                                   &x, scale_name, strlen(scale_name))
                                   ->bytes
                         : NULL,
                count, wide);
        if (narrowed && narrow)
            same = same && !memcmp(p->bytes, q->bytes, q->used);
        else if (narrow)
            optim_lane_write(lane, OPTIM_8BIT, values, scales, count, wide);
        else
            memcpy(values, wide, q->used);
        if (!(narrowed && narrow))
            same = same && !memcmp(values, q->bytes, q->used);
    }
    free(wide);
    free(scales);
    saved_state_free(&x);
    saved_state_free(&y);
    return same;
}

/* What is fp32 is cut over ranks: 8-bit states of a model this small are not.
 */
static void formats_change(const char *before, const char *after)
{
    static const char cut[] = "parallel.tp_size=2";
    int changed = 0;
    bool narrows = strstr(after, "_8bit");
    const char *from = saved_at(find(before), 2, 2, narrows ? cut : device);
    const char *to = moved_to(
            from, find(after), narrows ? 3 : 4, 1, narrows ? host : cut);
    bool ok = to && converted(from, to, narrows ? 3 : 4, &changed);
    tap_ok(ok && changed > 0, "%s -> %s: %d lanes are converted", before, after,
           changed);
}

static int64_t applied_steps(const char *dir, int step)
{
    json_auto_t *manifest = job_manifest(dir, step);
    int64_t applied = json_integer_at(
            json_object_get(manifest, "progress"), "applied_steps");
    return applied;
}

/* Another optimizer keeps the weights and begins its states anew. */
static void families_change(void)
{
    const char *from = saved_at(find("adamw"), 2, 3, host);
    const char *to = moved_to(from, find("lion"), 2, 3, host);
    bool ok = to != NULL;
    struct saved_state x = {0}, y = {0};
    if (ok) {
        x = saved_state_of(from, 2, CUT);
        y = saved_state_of(to, 2, CUT);
    }
    ZD_EACH(q, y.arrays, y.count) {
        struct saved_array *p = saved_array_of(&x, q->name, strlen(q->name));
        for (size_t k = 0;
             q->name[0] == 'm' && q->name[1] == '/' && k < q->used; k++)
            ok = ok && q->bytes[k] == 0;
        if (strncmp(q->name, "master/", 7) == 0)
            ok = ok && !memcmp(p->bytes, q->bytes, q->used);
        ok = ok && q->name[0] != 'v';
    }
    tap_ok(ok && applied_steps(from, CUT) == CUT && applied_steps(to, CUT) == 0,
           "adamw -> lion: the weights go on, states and t begin anew");
    saved_state_free(&x);
    saved_state_free(&y);
}

int main(void)
{
    for (int i = 0; i < VARIANTS; i++) {
        states_move(&variants[i], i);
        resumes(&variants[i], 2, i % 4);
    }
    formats_change("adamw", "adamw_8bit");
    formats_change("adamw_8bit", "adamw");
    formats_change("adam_mini", "adam_mini_8bit");
    formats_change("lion_8bit", "lion");
    families_change();
    long_tensors_move();
    return tap_done();
}
