/* test_columns.c - checkpoints of tensor-parallel meshes: one that a single
 * rank wrote, cut as places of tp would have saved it, gives every range of
 * every mesh the same bits. */
#include "base/file/fs.h"
#include "model/files/config.h"
#include "model/slice.h"
#include "tests/support/job_threads.h"
#include "tests/support/reshard.h"
#include "tests/support/saved_state.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/cli.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char llama[] = "tests/train/states.toml";
static const char gpt2[] = "tests/fixtures/gpt2/job.toml"; /* c_attn: columns */
enum { CUT = 3 };

/* Slices of 8-bit states must have blocks of the whole. */
static const char narrow[] = "model.config.vocab_size=515";
static const char wide[] =
        "optim.name=adamw_8bit optim.stable_embedding=false "
        "model.config.hidden_size=512 model.config.intermediate_size=1024 "
        "model.config.num_hidden_layers=1 model.config.num_key_value_heads=4";
static const struct {
    const char *job, *sets;
    int tp, shards;    /* files of each place */
    const char *reads; /* sizes of tp whose slices are read */
} rows[] = {
        {llama, narrow, 2, 3, "124"}, {llama, narrow, 4, 1, "124"},
        {llama, narrow, 4, 5, "24"},  {llama, wide, 2, 2, "12"},
        {gpt2, "", 4, 2, "124"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct checkpoint *open_at(const char *path)
{
    struct checkpoint *checkpoint;
    return checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint) == ZD_OK
                   ? checkpoint
                   : NULL;
}

/* Values of a lane, or weights, as they lie in memory; `scales` last. */
static bool read_part(
        const struct checkpoint *checkpoint, int lane,
        const struct pieces_range *range, char *values, float *scales)
{
    if (lane == ZERO_WEIGHTS)
        return pieces_read_weights(
                       checkpoint, range, (float *)(void *)values) == ZD_OK;
    return pieces_read_lane(
                   checkpoint, (enum optim_lane)lane, range, values, scales) ==
           ZD_OK;
}

/* Elements of a slice out of `cut` are those that the whole has there. */
static bool slice_is_right(
        const struct checkpoint *whole, const struct checkpoint *cut,
        const struct param *param, int lane, size_t begin, size_t count)
{
    struct pieces_range range = {param->name, param, begin, count};
    char *got = calloc(count, sizeof(float)), *want = calloc(count, 4);
    float *got_scales = calloc(count, 1 + sizeof(float));
    float *want_scales = calloc(count, 1 + sizeof(float));
    struct slice_run run = {.begin = begin};
    enum optim_format format =
            lane == ZERO_WEIGHTS
                    ? OPTIM_FP32
                    : pieces_format(whole, (enum optim_lane)lane, param->name);
    bool ok = read_part(cut, lane, &range, got, got_scales);
    while (ok && param_slice_next(param, begin + count, &run)) {
        struct pieces_range of = {param->name, NULL, run.whole, run.count};
        size_t at = run.begin - begin;
        if (!run.is_padding)
            ok = read_part(
                    whole, lane, &of, want + optim_lane_bytes(format, at),
                    want_scales + optim_scale_count(format, at));
    }
    ok = ok && memcmp(got, want, count * 4) == 0 &&
         memcmp(got_scales, want_scales, count) == 0;
    free(got);
    free(want);
    free(got_scales);
    free(want_scales);
    return ok;
}

/* All slices of `tp` places, in parts that begin and end anywhere. */
static bool slices_are_right(
        const struct checkpoint *whole, const struct checkpoint *cut, int tp)
{
    struct model_config config;
    bool ok = model_config_read(checkpoint_path(whole), &config) == ZD_OK;
    for (int place = 0; ok && place < tp; place++) {
        struct param_table table;
        struct tp at = {tp, place};
        ok = param_table_slice(&config, at, NULL, 0, &table) == ZD_OK;
        for (int id = 0; ok && id < table.count; id++) {
            const struct param *param = &table.params[id];
            size_t part = OPTIM_QBLOCK * (size_t)(1 + (id + place) % 40);
            for (size_t begin = 0; ok && begin < param->count; begin += part) {
                size_t left = param->count - begin;
                for (int lane = 0; ok && lane <= OPTIM_LANES; lane++)
                    ok = slice_is_right(
                            whole, cut, param, lane, begin,
                            left < part ? left : part);
            }
        }
        param_table_fini(&table);
    }
    model_config_fini(&config);
    return ok;
}

static bool exports_alike(const char *a, const char *b, const char *dir)
{
    char command[3 * PATH_MAX], from[PATH_MAX], to[PATH_MAX];
    snprintf(from, sizeof from, "%s/whole", dir);
    snprintf(to, sizeof to, "%s/cut", dir);
    snprintf(
            command, sizeof command,
            "cmp %s/model.safetensors %s/model.safetensors", from, to);
    return train_export(&(struct train_export){.path = a, .out_dir = from}) ==
                   ZD_OK &&
           train_export(&(struct train_export){.path = b, .out_dir = to}) ==
                   ZD_OK &&
           system(command) == 0;
}

static bool loads_alike(
        int i, const char *whole, const char *cut, int world, const char *tier)
{
    const char *dir = job_threads_dir();
    return job_runs(
                   rows[i].job, dir, world,
                   "%s %s checkpoint.export=none run.stop_after=3 "
                   "run.resume=%s",
                   rows[i].sets, tier, cut) &&
           same_saved_state(whole, 1, dir, world, CUT);
}

/* What the manifest says of columns 80 to 159 of a weight, by another hand. */
static const char *const hostile[] = {
        "[79:159]@0+",         /* overlaps */
        "[0:80]@0+",           /* twice */
        "@0+",                 /* all beside some */
        "[120:160,80:120]@0+", /* falls */
        "[80:161]@0+",         /* past the end */
        "[80:80]@0+",
        "[-1:80]@0+",
        "[80:9223372036854775808]@0+",
        "[80:81,82:83,84:85,86:160]@0+",
        "[80:160@0+",
        "[80:160]]@0+",
        "[80-160]@0+",
        "[]@0+",
        "[80:160]@1+",   /* no multiple of 256 */
        "[80:160]@256+", /* past the end */
        "[80:160]@9223372036854775552+",
        "[80:160]@18446744073709551360+",
};

static bool is_refused(const char *path, const char *text, const char *now)
{
    static const char was[] = "down_proj.weight[80:160]@0+";
    char file[PATH_MAX];
    struct checkpoint *open = NULL;
    const char *at = strstr(text, was);
    if (!at)
        return false;
    size_t bytes = strlen(text) + strlen(now) + 1;
    char *changed = malloc(bytes);
    snprintf(
            changed, bytes, "%.*sdown_proj.weight%s%s", (int)(at - text), text,
            now, at + strlen(was));
    json_t *manifest = json_loads(changed, 0, NULL);
    json_object_del(manifest, "manifest_xxh3_128");
    manifest_seal(manifest);
    fs_join(file, sizeof file, path, CHECKPOINT_MANIFEST);
    bool ok = json_write_file(file, manifest) == ZD_OK &&
              checkpoint_open(path, CHECKPOINT_TRUSTED, &open) == ZD_ERR_DATA &&
              strcmp(zd_error_get()->code, "E0802") == 0 &&
              strstr(zd_error_get()->what, "down_proj");
    if (open)
        checkpoint_close(open);
    zd_error_clear();
    json_decref(manifest);
    free(changed);
    return ok;
}

static void refuses(const char *path)
{
    char file[PATH_MAX], *text;
    size_t bytes;
    fs_join(file, sizeof file, path, CHECKPOINT_MANIFEST);
    if (fs_read_file(file, 1 << 28, &text, &bytes) != ZD_OK)
        abort();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        tap_ok(is_refused(path, text, hostile[i]), "refused: %s", hostile[i]);
    free(text);
}

static void check(int i)
{
    char from[PATH_MAX], cut[PATH_MAX], tier[100];
    const char *dir = job_threads_dir();
    int tp = rows[i].tp;
    bool ok = job_runs(
            rows[i].job, dir, 1, "%s checkpoint.export=none run.stop_after=3",
            rows[i].sets);
    snprintf(from, sizeof from, "%s/out/checkpoint-%06d", dir, CUT);
    snprintf(cut, sizeof cut, "%s/cut-%d", dir, i);
    ok = ok && reshard(from, cut, rows[i].shards, tp, CHECKPOINT_FORMAT);
    struct checkpoint *a = ok ? open_at(from) : NULL;
    struct checkpoint *b = ok ? open_at(cut) : NULL;
    tap_ok(a && b, "row %d: cut for tp %d", i, tp);
    for (const char *size = rows[i].reads; a && b && *size; size++)
        tap_ok(slices_are_right(a, b, *size - '0') &&
                       slices_are_right(b, a, *size - '0'),
               "row %d: slices for tp %c", i, *size);
    checkpoint_close(a);
    checkpoint_close(b);
    tap_ok(exports_alike(from, cut, dir), "row %d: the same export", i);
    snprintf(
            tier, sizeof tier, "zero.stage=%d parallel.tp_size=%d %s", i % 4,
            tp, i % 2 ? "offload.optimizer=cpu" : "");
    tap_ok(loads_alike(i, dir, cut, 1, "zero.stage=0") &&
                   loads_alike(
                           i, dir, cut, 3,
                           "zero.stage=2 offload.optimizer=cpu"),
           "row %d: loaded by 1 and 3 ranks without tp: the same bits", i);
    tap_ok(loads_alike(i, dir, from, 2 * tp, tier) &&
                   loads_alike(i, dir, cut, 2 * tp, tier),
           "row %d: loaded by tp from either: the same bits", i);
    if (i == 0)
        refuses(cut);
}

int main(void)
{
    for (int i = 0; i < ROWS; i++)
        check(i);
    return tap_done();
}
