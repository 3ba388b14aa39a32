/* test_many_shards.c - a checkpoint of a thousand ranks where a process may
 * open few files: listed, shown, verified, resumed and exported; and no one
 * opens a shard that has nothing for him. */
#include "base/file/fs.h"
#include "model/files/config.h"
#include "tests/support/job_threads.h"
#include "tests/support/reshard.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/cli.h"
#include "train/checkpoint/pieces.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *job = "tests/train/states.toml";
enum { SHARDS = 1024, DESCRIPTORS = 256, OF_A_CHECKPOINT = 16 };

static bool train(const char *dir, int world, const char *stage)
{
    const char *sets[] = {
            stage,
            "model.config.hidden_size=128",
            "train.max_steps=4",
            "checkpoint.save_steps=2",
            "checkpoint.save_total_limit=0",
            "checkpoint.export=hf",
            NULL};
    return job_threads_run(job, sets, world, dir) == ZD_OK;
}

/* From now on this process has no more than `count` descriptors. */
static void allow_descriptors(rlim_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        abort();
    limit.rlim_cur = count;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        abort();
}

static rlim_t descriptors_used(void)
{
    int next = dup(0);
    close(next);
    return (rlim_t)next;
}

static bool answers(checkpoint_query *query, const char *path)
{
    json_auto_t *told = NULL;
    bool ok = query(path, &told) == ZD_OK && told;
    if (json_is_array(told))
        ok = ok && json_integer_at(json_array_get(told, 0), "world") == SHARDS;
    return ok;
}

/* A resumed run of `world` ranks has steps 3 and 4 of the whole one. */
static bool resumes(
        const char *whole, const char *checkpoint, int world, const char *stage)
{
    char command[3 * PATH_MAX];
    double *a, *b, apart = 0;
    const char *dir = job_threads_dir();
    ZD_PRINT(
            command, "mkdir %s/out && cp -r %s %s/out/checkpoint-000002", dir,
            checkpoint, dir);
    if (system(command) != 0 || !train(dir, world, stage))
        return false;
    int a_count = job_threads_column(whole, "loss", &a);
    int b_count = job_threads_column(dir, "loss", &b);
    bool ok = a_count == 4 && b_count == 2;
    for (int i = 0; ok && i < 2; i++)
        apart = a[2 + i] > b[i] ? a[2 + i] - b[i] : b[i] - a[2 + i];
    ok = ok &&
         (world == 1 ? memcmp(a + 2, b, 2 * sizeof *a) == 0 : apart < 1e-4);
    free(a);
    free(b);
    return ok && (world > 1 || same_model(whole, dir));
}

static bool exports(const char *whole, const char *checkpoint)
{
    char out[PATH_MAX], now[PATH_MAX], then[PATH_MAX];
    ZD_PRINT(out, "%s/hf", job_threads_dir());
    fs_join(now, sizeof now, out, "model.safetensors");
    fs_join(then, sizeof then, whole, "out/hf2/model.safetensors");
    return train_export(&(struct train_export){
                   .path = checkpoint, .out_dir = out}) == ZD_OK &&
           same_file(now, then);
}

/* Only the shards that overlap are left; the rest of the folder is gone. */
static bool reads_few(const char *checkpoint)
{
    char path[PATH_MAX];
    float values[300];
    int kept = 0;
    struct model_config config;
    struct param_table table;
    struct checkpoint *open;
    const char *wanted = "model.layers.1.mlp.up_proj.weight@";

    if (checkpoint_open(checkpoint, CHECKPOINT_TRUSTED, &open) != ZD_OK ||
        model_config_read(checkpoint, false, &config) != ZD_OK ||
        param_table_build(&config, NULL, 0, &table) != ZD_OK)
        return false;
    const json_t *files = json_object_get(open->manifest, "files");
    JSON_EACH(entry, files) {
        bool has = false;
        JSON_EACH(text, json_object_get(entry, "holds"))
            has |= strncmp(json_string_value(text), wanted, strlen(wanted)) ==
                   0;
        kept += has;
        fs_join(path, sizeof path, checkpoint, json_string_at(entry, "name"));
        if (!has)
            unlink(path);
    }
    int id = 0;
    while (strncmp(table.params[id].name, wanted, strlen(wanted) - 1) != 0)
        id++;
    bool ok = kept > 40 && kept < 100;
    struct pieces_range range = {.name = table.params[id].name, .count = 300};
    for (; ok && range.begin + 300 <= table.params[id].count;
         range.begin += 250)
        ok = pieces_read_weights(open, &range, values) == ZD_OK;
    checkpoint_close(open);
    param_table_fini(&table);
    model_config_fini(&config);
    return ok;
}

int main(void)
{
    char from[PATH_MAX], many[PATH_MAX], old[PATH_MAX];
    char whole[PATH_MAX / 2], hf[PATH_MAX];
    ZD_PRINT(whole, "%s", job_threads_dir());
    ZD_PRINT(from, "%s/out/checkpoint-000002", whole);
    ZD_PRINT(hf, "%s/out/hf2", whole);
    ZD_PRINT(many, "%s/many", job_threads_dir());
    tap_ok(train(whole, 1, "zero.stage=0"), "a run of one rank");
    tap_ok(train_export(&(struct train_export){.path = from, .out_dir = hf}) ==
                   ZD_OK,
           "its export");
    tap_ok(reshard(from, many, SHARDS, 5), "its checkpoint as %d shards",
           SHARDS);
    ZD_PRINT(old, "%s/old", job_threads_dir());
    tap_ok(reshard(from, old, 8, 4) && !answers(checkpoint_verify, old) &&
                   strstr(zd_error_get()->help, "zerod 0.1.0"),
           "format 4 is refused, and what reads it is named");
    zd_error_clear();

    allow_descriptors(DESCRIPTORS);
    tap_ok(resumes(whole, many, 1, "zero.stage=0"), "resumed by one rank");
    tap_ok(resumes(whole, many, 4, "zero.stage=3"), "resumed by four ranks");
    allow_descriptors(descriptors_used() + OF_A_CHECKPOINT);
    tap_ok(answers(checkpoint_ls, many), "listed");
    tap_ok(answers(checkpoint_show, many), "shown");
    tap_ok(answers(checkpoint_verify, many), "verified");
    tap_ok(exports(whole, many), "exported");
    tap_ok(reads_few(many), "shards that hold nothing of it are not opened");
    return tap_done();
}
