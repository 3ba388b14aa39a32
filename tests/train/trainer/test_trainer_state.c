/* test_trainer_state.c - trainer_state.json: the keys that transformers writes,
 * in checkpoints and at the end, and a history that a resumed run goes on with.
 */
#include "base/file/fs.h"
#include "base/must.h"
#include "tests/support/job_threads.h"
#include "train/checkpoint/checkpoint.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define run(dir, ...)                                                          \
    job_runs(                                                                  \
            "tests/fixtures/deep.toml", dir, 2,                                \
            "checkpoint.export=none checkpoint.save_steps=2 "                  \
            "eval.eval_steps=2 checkpoint.save_total_limit=0 " __VA_ARGS__)

static json_t *state_of(const char *dir, const char *folder)
{
    char path[PATH_MAX];
    json_t *json = NULL;
    ZD_PRINT(path, "%s/out/%s/trainer_state.json", dir, folder);
    if (json_parse_file(path, 1 << 24, &json) != ZD_OK) {
        zd_error_clear();
        return NULL;
    }
    return json;
}

static const json_t *history_of(const json_t *state)
{
    return json_object_get(state, "log_history");
}

/* Those of transformers' TrainerState, sorted as it does. */
static bool has_all_keys(const json_t *state)
{
    static const char keys[] =
            "best_global_step best_metric best_model_checkpoint epoch "
            "eval_steps global_step is_hyper_param_search "
            "is_local_process_zero is_world_process_zero log_history "
            "logging_steps max_steps num_input_tokens_seen num_train_epochs "
            "save_steps stateful_callbacks total_flos train_batch_size "
            "trial_name trial_params ";
    char found[sizeof keys + 100] = "";
    JSON_MEMBERS(key, value, state) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s ", key);
    }
    return strcmp(found, keys) == 0;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A row of its steps, with the values of metrics.jsonl. */
static bool has_row(
        const char *dir, const json_t *state, int step, const char *key,
        const char *column, int place)
{
    ZD_FREED double *values = NULL;
    bool found = false;
    int rows = job_threads_column(dir, column, &values);
    JSON_EACH(row, history_of(state))
        if (number(row, "step") == step && json_object_get(row, key))
            found = place < rows && number(row, key) == values[place];
    return found;
}

static void told(const char *dir)
{
    bool ran = run(dir, "log.logging_steps=1");
    json_auto_t *end = ran ? state_of(dir, "") : NULL;
    json_auto_t *middle = ran ? state_of(dir, "checkpoint-000002") : NULL;
    tap_ok(end && has_all_keys(end) && has_all_keys(middle),
           "it has transformers' keys, at the end and in a checkpoint");
    tap_ok(number(end, "global_step") == 5 &&
                   number(middle, "global_step") == 2 &&
                   number(end, "max_steps") == 5 &&
                   number(end, "save_steps") == 2 &&
                   number(end, "eval_steps") == 2 &&
                   number(end, "logging_steps") == 1 &&
                   number(end, "train_batch_size") == 2 &&
                   number(end, "num_input_tokens_seen") > 0 &&
                   number(end, "total_flos") > 1e6 &&
                   number(end, "epoch") > 0 &&
                   number(end, "epoch") <= number(end, "num_train_epochs"),
           "it says where the run is");
    /* 5 steps; evaluations at the start, after 2, 4 and the last */
    tap_ok(json_array_size(history_of(end)) == 9 &&
                   json_array_size(history_of(middle)) == 4 &&
                   has_row(dir, end, 1, "loss", "loss", 0) &&
                   has_row(dir, end, 5, "loss", "loss", 4) &&
                   has_row(dir, end, 5, "grad_norm", "grad_norm", 4) &&
                   has_row(dir, end, 3, "learning_rate", "learning_rate", 2) &&
                   has_row(dir, end, 4, "eval_loss", "eval_loss", 2),
           "its history has the values of metrics.jsonl");
    char best[64];
    checkpoint_name(
            best, sizeof best, (int64_t)number(end, "best_global_step"));
    const char *named = json_string_at(end, "best_model_checkpoint");
    tap_ok(number(end, "best_metric") > 0 && named && strcmp(named, best) == 0,
           "it names the best checkpoint");
}

/* Every other step: the mean of both. */
static void means_are_logged(void)
{
    ZD_FREED double *loss = NULL;
    const char *dir = job_threads_dir();
    bool ran =
            run(dir, "log.logging_steps=2 eval.eval_strategy=no "
                     "eval.eval_on_start=false");
    json_auto_t *end = ran ? state_of(dir, "") : NULL;
    const json_t *second = json_array_get(history_of(end), 2);
    int rows = job_threads_column(dir, "loss", &loss);
    tap_ok(end && rows == 5 && json_array_size(history_of(end)) == 3 &&
                   number(second, "step") == 4 &&
                   number(second, "loss") == (loss[2] + loss[3]) / 2 &&
                   json_is_null(json_object_get(end, "best_metric")),
           "the loss of a row is the mean since the one before");
}

static void goes_on(const char *whole)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, "log.logging_steps=1 run.stop_after=3") &&
               run(dir, "log.logging_steps=1");
    json_t *a = state_of(whole, ""), *b = ran ? state_of(dir, "") : NULL;
    tap_ok(a && b && json_equal(history_of(a), history_of(b)),
           "a resumed run has the same history");
    json_decref(a);
    json_decref(b);
}

static void can_be_left_out(void)
{
    const char *dir = job_threads_dir();
    bool ran = run(dir, "report.trainer_state=false");
    json_t *end = state_of(dir, ""), *one = state_of(dir, "checkpoint-000002");
    tap_ok(ran && !end && !one, "report.trainer_state = false: there is none");
    json_decref(end);
    json_decref(one);
}

static void is_verified(const char *dir)
{
    char path[PATH_MAX], file[PATH_MAX];
    struct checkpoint *checkpoint = NULL;
    ZD_PRINT(path, "%s/out/checkpoint-000002", dir);
    bool sound =
            checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint) == ZD_OK;
    checkpoint_close(checkpoint);
    fs_join(file, sizeof file, path, "trainer_state.json");
    bool changed = fs_write_file(file, "{}\n", 3) == ZD_OK;
    tap_ok(sound && changed &&
                   checkpoint_open(path, CHECKPOINT_DIGESTS, &checkpoint) ==
                           ZD_ERR_DATA,
           "the manifest of a checkpoint has it");
    zd_error_clear();
}

/* transformers' own reader, where there is one: PYTHON, else python3. */
static void transformers_reads_it(const char *dir)
{
    char command[2 * PATH_MAX];
    const char *python = getenv("PYTHON");
    ZD_PRINT(
            command,
            "%s -c 'from transformers import TrainerState' 2>/dev/null",
            python ? python : "python3");
    if (system(command) != 0) {
        tap_ok(true, "transformers reads it # SKIP no Python with it");
        return;
    }
    ZD_PRINT(
            command,
            "%s -c 'import sys; from transformers import TrainerState; "
            "s = TrainerState.load_from_json(sys.argv[1]); "
            "assert s.global_step == 5 and len(s.log_history) == 9; "
            "s.save_to_json(sys.argv[1] + \".again\"); "
            "import json; a, b = [json.load(open(sys.argv[1] + e)) "
            "for e in (\"\", \".again\")]; assert a == b, (a, b)' "
            "%s/out/trainer_state.json",
            python ? python : "python3", dir);
    tap_ok(system(command) == 0, "transformers reads it, and writes the same");
}

int main(void)
{
    const char *dir = job_threads_dir();
    told(dir);
    means_are_logged();
    goes_on(dir);
    can_be_left_out();
    transformers_reads_it(dir);
    is_verified(dir);
    return tap_done();
}
