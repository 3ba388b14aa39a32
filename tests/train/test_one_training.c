/* test_one_training.c - what was saved in one mesh is the same state in
 * another. That a resumed run equals an unbroken one is in same_runs.txt. */
#include "base/number/rng.h"
#include "tests/support/job_threads.h"
#include "tests/support/saved_state.h"
#include "train/checkpoint/cli.h"

#include <limits.h>
#include <stdio.h>

enum { CUT = 6 };
struct model {
    const char *job, *sets;
    int most; /* tensor parallelism */
};
/* One whose sizes nothing divides, and those that tensor parallelism cuts, but
 * for the vocabulary, which it pads. */
static const struct model odd = {"tests/fixtures/llama_odd/job.toml", "", 1};
#define EVEN "train.global_batch_size=24 model.config.vocab_size=515 "
static const struct model even = {"tests/train/states.toml", EVEN, 4};
static const struct model others[] = {
        {"tests/train/states.toml", EVEN "optim.name=adam_mini", 4},
        {"tests/train/states.toml",
         EVEN "model.config.model_type=phi3 optim.name=adam_mini", 4},
        {"tests/train/states.toml", EVEN "lora.enabled=true", 4},
        {"tests/train/states.toml",
         EVEN "lora.enabled=true lora.quantize_base=nf4 "
              "model.config.hidden_size=256 model.config.num_hidden_layers=1 "
              "model.config.intermediate_size=512",
         4},
        {"tests/train/states.toml",
         EVEN "optim.name=adamw_8bit optim.stable_embedding=false "
              "model.config.hidden_size=512 model.config.num_hidden_layers=1 "
              "model.config.intermediate_size=1024",
         2}};
/* Settings are words; a dir that exists is resumed. */
#define run_of(model, dir, world, ...)                                         \
    job_runs((model)->job, dir, world, "train.max_steps=12 " __VA_ARGS__)
#define run(dir, world, ...) run_of(&odd, dir, world, __VA_ARGS__)

/* Who cuts what, and where it lies. */
struct layout {
    int world, replicate, cp, tp, stage;
    bool on_host;
};

struct words {
    char text[400];
};
static struct words words_of(const struct model *model, struct layout layout)
{
    struct words words;
    ZD_PRINT(
            words.text,
            "zero.stage=%d parallel.dp_replicate_size=%d parallel.cp_size=%d "
            "parallel.tp_size=%d offload.optimizer=%s %s",
            layout.stage, layout.replicate, layout.cp, layout.tp,
            layout.on_host ? "cpu" : "none", model->sets);
    return words;
}

/* Load into another folder and save at once: nothing is computed. NULL: the
 * states are not the same. */
static const char *moved(
        const struct model *model, const char *from, struct layout a,
        struct layout b)
{
    const char *dir = job_threads_dir();
    bool ran = from &&
               run_of(model, dir, b.world,
                      "%s run.stop_after=6 run.resume=%s/out/checkpoint-000006",
                      words_of(model, b).text, from);
    return ran && same_saved_state(from, a.world, dir, b.world, CUT) ? dir
                                                                     : NULL;
}

/* Saved as a, loaded as b: the state is the same and the losses go on. */
static void try_pair(
        const struct model *model, const char *whole, struct layout a,
        struct layout b)
{
    const char *dir = job_threads_dir();
    bool ran =
            run_of(model, dir, a.world, "%s run.stop_after=6",
                   words_of(model, a).text);
    bool same = ran && moved(model, dir, a, b);
    ran = ran && run_of(model, dir, b.world, "%s", words_of(model, b).text);
    double worst = column_difference(whole, dir, "loss");
    tap_ok(same && ran && worst <= 1e-5,
           "%d ranks (%s), then %d (%s): the same states, losses %.2g", a.world,
           words_of(model, a).text, b.world, words_of(model, b).text, worst);
}

/* One that divides the batch of 24, in which tensors are cut over `least` to
 * `most` ranks. */
static struct layout random_layout(uint64_t number, int least, int most)
{
    static const int worlds[] = {1, 2, 3, 4, 6, 8};
    struct layout layout;
    do {
        layout.world = worlds[(int)(6 * rng_uniform(1, number, 0))];
        layout.replicate = 1 << (int)(3 * rng_uniform(1, number++, 1));
        layout.cp = 1 << (int)(2 * rng_uniform(1, number, 5));
        layout.tp = 1 << (int)(3 * rng_uniform(1, number, 4));
    } while (layout.tp < least || layout.tp > most ||
             layout.world % (layout.replicate * layout.cp * layout.tp));
    layout.stage = (int)(4 * rng_uniform(1, number, 2));
    layout.on_host = rng_uniform(1, number, 3) < 0.5F;
    return layout;
}

/* One rank to four, the last two by two; in the suite `long` any. */
static void worlds_mix(bool all)
{
    const char *whole = job_threads_dir();
    tap_ok(run(whole, 1, ""), "the unbroken run on one rank");
    for (int a = 1; a <= 4; a++)
        for (int b = 1; b <= 4; b++) {
            struct layout from = {a, a == 4 ? 2 : 1, 1, 1, a - 1, false};
            struct layout to = {b, b == 4 ? 2 : 1, 1, 1, b - 1, b == 2};
            if (all || a == b || (a + b) % 2)
                try_pair(&odd, whole, from, to);
        }
}

/* Random meshes, one of the two with tensor parallelism. */
static void meshes_mix(int pairs)
{
    const char *whole = job_threads_dir();
    tap_ok(run_of(&even, whole, 1, "%s", even.sets), "the unbroken run of one");
    for (int i = 0; i < pairs; i++) {
        uint64_t number = 2000 * (uint64_t)i;
        struct layout a = random_layout(number, 1, even.most);
        struct layout b =
                random_layout(number + 1000, a.tp > 1 ? 1 : 2, even.most);
        try_pair(&even, whole, a, b);
    }
}

/* Does `zerod export` make of both checkpoints one model? */
static bool exports_alike(const char *first, const char *last)
{
    char from[PATH_MAX], out[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        ZD_PRINT(from, "%s/out/checkpoint-%06d", i ? last : first, CUT);
        ZD_PRINT(out, "%s/out/exported", i ? last : first);
        if (train_export(&(struct train_export){
                    .path = from, .out_dir = out}) != ZD_OK)
            return false;
    }
    return same_output(first, last, "exported/model.safetensors") ||
           same_output(first, last, "exported/adapter_model.safetensors");
}

/* A state that goes from mesh to mesh stays as it was. */
static void chain_keeps(const struct model *model, int meshes)
{
    struct layout last = {1, 1, 1, 1, 0, false};
    const char *dir = job_threads_dir(), *first = dir;
    bool ran = run_of(model, dir, 1, "%s run.stop_after=6", model->sets);
    for (int i = 0; ran && dir && i < meshes; i++) {
        struct layout next =
                random_layout(2000 * (uint64_t)i + 500, 1, model->most);
        dir = moved(model, dir, last, next);
        last = next;
    }
    tap_ok(ran && dir && exports_alike(first, dir),
           "the same bits and export after %d meshes: %s", meshes, model->sets);
}

int main(int argc, char **argv)
{
    const bool all = argc > 1; /* every pair of worlds */
    worlds_mix(all);
    meshes_mix(all ? 60 : 10);
    chain_keeps(&even, all ? 60 : 10);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        chain_keeps(&others[i], all ? 30 : 5);
    return tap_done();
}
