/* test_folders.c - folders that change while a run goes on, or that it leaves:
 * the model's goes, another's checkpoint comes, and an export tells where its
 * texts end. */
#include "tests/support/job_threads.h"

#include "base/file/fs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- the model's goes: checkpoints and export have what was in it --------- */

static const char *const names[] = {
        "config.json",         "generation_config.json",
        "tokenizer.json",      "tokenizer_config.json",
        "tokenizer.model",     "chat_template.json",
        "chat_template.jinja", NULL};

static void shell(const char *format, const char *dir)
{
    char command[3 * PATH_MAX];
    ZD_PRINT(command, format, dir, dir, dir);
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
    ZD_PRINT(first, "%s/gone/%s", dir, name);
    ZD_PRINT(second, "%s/%s/%s", dir, place, name);
    return same_file(first, second);
}

static void what_was_in_the_models_folder_is_kept(void)
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
        ZD_PRINT(path, "%s/gone/%s", dir, names[i]);
        if (!fs_exists(path))
            continue;
        tap_ok(has_same(dir, "out/checkpoint-000003", names[i]),
               "checkpoint 3 has %s", names[i]);
        tap_ok(i == 0 || has_same(dir, "out/hf", names[i]), "the export has %s",
               names[i]);
    }
}

/* --- a checkpoint comes to where one is to be saved: it stays ------------- */

struct visitor {
    char from[PATH_MAX], to[PATH_MAX];
    bool has_been;
};

/* A checkpoint of step 2 under the name of step 4. */
static void visit(void *ctx, const struct train_event *event)
{
    char command[3 * PATH_MAX];
    struct visitor *visitor = ctx;
    if (strcmp(event->kind, "checkpoint") != 0 || event->step != 2)
        return;
    ZD_PRINT(command, "cp -r %s %s", visitor->from, visitor->to);
    visitor->has_been = system(command) == 0;
}

static void a_checkpoint_of_another_stays(void)
{
    const char *dir = job_threads_dir();
    struct visitor visitor = {0};
    ZD_PRINT(visitor.from, "%s/out/checkpoint-000002", dir);
    ZD_PRINT(visitor.to, "%s/out/checkpoint-000004", dir);
    struct train_observer observer = {.ctx = &visitor, .event = visit};
    bool ran = job_runs_observed(
            "tests/train/bytes.toml", dir, 2, &observer,
            "train.max_steps=4 checkpoint.save_strategy=steps "
            "checkpoint.save_steps=2 checkpoint.export=none");
    const struct zd_error *error = zd_error_get();
    tap_ok(visitor.has_been, "another's checkpoint comes in between");
    tap_ok(!ran && error->status == ZD_ERR_IO &&
                   strcmp(error->code, "E0814") == 0,
           "the save is refused (status %d, %s)", error->status, error->code);
    tap_ok(strstr(error->what, "checkpoint-000004") != NULL, "and names it: %s",
           error->what);
    json_auto_t *manifest = job_manifest(dir, 4);
    tap_ok(json_integer_at(manifest, "step") == 2, "what was there is there");
}

/* --- config.json of a model made here says where texts end ---------------- */

static json_int_t exported_eos(const char *dir)
{
    char path[PATH_MAX];
    json_auto_t *config = NULL;
    ZD_PRINT(path, "%s/out/hf/config.json", dir);
    if (json_parse_file(path, 1 << 20, &config) != ZD_OK)
        return -2;
    const json_t *eos = json_object_get(config, "eos_token_id");
    json_int_t id = json_is_integer(eos) ? json_integer_value(eos) : -1;
    return id;
}

static void an_export_says_where_its_texts_end(void)
{
    const char *dir = job_threads_dir();
    const char *none[] = {NULL};
    bool ran = job_threads_run("tests/train/bytes.toml", none, 1, dir) == ZD_OK;
    tap_ok(ran && exported_eos(dir) == 256,
           "a byte model ends at 256 (config.json has %lld)",
           (long long)exported_eos(dir));

    dir = job_threads_dir();
    const char *given[] = {"model.config.eos_token_id=7", NULL};
    ran = job_threads_run("tests/train/bytes.toml", given, 1, dir) == ZD_OK;
    tap_ok(ran && exported_eos(dir) == 7, "what the job gives stays (%lld)",
           (long long)exported_eos(dir));
}

int main(void)
{
    what_was_in_the_models_folder_is_kept();
    a_checkpoint_of_another_stays();
    an_export_says_where_its_texts_end();
    return tap_done();
}
