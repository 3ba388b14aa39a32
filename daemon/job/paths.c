/* paths.c - what the job names and is not there, or is not what it has to
 * be. */
#include "daemon/job/job_internal.h"

#include "base/file/fs.h"
#include "data/match.h"
#include "model/files/config.h"
#include "offload/offload.h"
#include "train/plan/plan.h"
#include "train/text/text.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* --- where a key of an entry stands --- */

static struct toml_place entry_place(
        const struct job *job, const char *name, int i)
{
    const struct toml_node *data = toml_find(job->root, "data");
    const struct toml_node *list = data ? toml_find(data, name) : NULL;
    bool is_there = list && list->kind == TOML_ARRAY && i < list->count;
    const struct toml_node *path =
            is_there ? toml_find(list->items[i], "path") : NULL;
    return path ? path->place
                : job_place(
                          job, strcmp(name, "eval") == 0 ? "data.eval"
                                                         : "data.train");
}

/* --- what does not exist --- */

/* "Qwen/Qwen2.5-0.5B", and the names from before there were slashes. */
static bool is_hub_name(const char *path)
{
    static const char *const old[] = {
            "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2"};
    int slashes = 0;
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++)
        if (strcmp(path, old[i]) == 0)
            return true;
    for (const char *c = path; *c; c++) {
        slashes += *c == '/';
        if (!isalnum((unsigned char)*c) && !strchr("._-/", *c))
            return false;
    }
    const char *slash = strchr(path, '/');
    if (slashes != 1 || slash == path || !slash[1] || path[0] == '.')
        return false;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return !fs_exists(folder);
}

/* `kind` of a hub's thing: "model", "dataset". */
static void help_missing(struct job *job, const char *kind, const char *path)
{
    char folder[PATH_MAX];
    bool is_data = strcmp(kind, "dataset") == 0;
    bool is_relative = path[0] != '/';
    const char *dot = strrchr(path, '.');
    bool is_file = is_data && dot && isalpha((unsigned char)dot[1]);
    if (is_hub_name(path) && !is_file)
        problem_help(
                &job->problems,
                "the name of a %s on a hub? local files only: hf download "
                "%s%s --local-dir %s%s%s%s",
                kind, is_data ? "--repo-type dataset " : "", path, path,
                is_data ? ", and path = \"" : "", is_data ? path : "",
                is_data ? "/**/*.jsonl\"" : "");
    else if (is_relative && getcwd(folder, sizeof folder))
        problem_help(
                &job->problems,
                "paths are relative to where zerod is started: %s", folder);
}

static void tell_missing(
        struct job *job, struct toml_place place, const char *what,
        const char *kind, const char *path)
{
    problem_add(
            &job->problems, ZD_ERR_NO_INPUT, "E0219", place, NULL,
            "%s %s does not exist", what, path);
    help_missing(job, kind, path);
}

static void check_path(
        struct job *job, const char *key, const char *what, const char *kind,
        const char *path)
{
    if (path && !job_key(job, key)->refused && !fs_exists(path))
        tell_missing(job, job_place(job, key), what, kind, path);
}

static void check_entries(
        struct job *job, const char *name, const struct data_entry *entries,
        int count)
{
    for (int i = 0; i < count; i++) {
        struct toml_place place = entry_place(job, name, i);
        struct match_list found;
        if (!entries[i].path || !*entries[i].path)
            continue; /* refused */
        if (match_files(entries[i].path, &found) != ZD_OK) {
            problem_take_record(&job->problems, place);
            continue;
        }
        if (found.count == 0)
            tell_missing(job, place, "data", "dataset", entries[i].path);
        match_free(&found);
    }
}

/* Can what is there be read? */
static void check_read(struct job *job)
{
    const struct train_job *options = &job->options;
    struct model_config config;
    if (options->model.path && fs_exists(options->model.path)) {
        if (job_plan_config(options, &config) != ZD_OK)
            job_take_record(
                    job, strstr(zd_error_get()->where, "model.rope_scaling")
                                 ? "model.rope_scaling"
                                 : "model.path");
        else
            model_config_fini(&config);
    }
    if (options->offload.optimizer == OFFLOAD_NVME &&
        offload_check_folder(options->offload.nvme_path) != ZD_OK)
        job_take_record(job, "offload.nvme_path");
}

void job_check_paths(struct job *job)
{
    const struct train_job *o = &job->options;
    bool has_problems = job->problems.count > 0;
    bool names_tokenizer =
            o->model.tokenizer && !text_is_bytes(o->model.tokenizer);
    check_path(job, "model.path", "model", "model", o->model.path);
    check_path(job, "lora.path", "adapter", "lora", o->lora.path);
    check_path(
            job, "model.tokenizer", "tokenizer", "model",
            names_tokenizer ? o->model.tokenizer : NULL);
    check_path(
            job, "run.resume", "checkpoint", "model",
            o->run.resume == RESUME_PATH ? o->run.resume_path : NULL);
    check_path(
            job, "data.chat_template", "chat template", "model",
            o->data.chat_file);
    check_entries(job, "train", o->data.train, o->data.train_count);
    check_entries(job, "eval", o->data.eval, o->data.eval_count);
    if (!has_problems)
        check_read(job);
}
