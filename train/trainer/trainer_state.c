#include "train/trainer/trainer_state.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"
#include "base/must.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const struct trainer *trainer)
{
    return trainer_is_first(trainer) && trainer->job->report.trainer_state;
}

static double epoch_now(const struct trainer *trainer)
{
    int64_t M = dataset_samples(trainer->train_data); /* 0: not known */
    return M ? (double)trainer->state.samples_taken / (double)M : 0;
}

/* --- the history ---------------------------------------------------------- */

static struct state_row *add_row(struct trainer *trainer)
{
    struct state_history *history = &trainer->history;
    history->rows =
            zd_grow(history->rows, &history->capacity, history->count + 1,
                    sizeof *history->rows);
    struct state_row *row = &history->rows[history->count++];
    *row = (struct state_row){
            trainer->state.step, epoch_now(trainer), NAN, NAN, NAN, NAN};
    return row;
}

void trainer_state_step(
        struct trainer *trainer, const struct train_step_report *report)
{
    struct state_history *history = &trainer->history;
    double every = report->settings[SET_LOGGING_STEPS];
    bool is_first = report->step == 1 && trainer->job->log.logging_first_step;
    if (!is_wanted(trainer))
        return;
    if (isfinite(report->loss)) {
        history->loss_sum += report->loss;
        history->loss_count++;
    }
    if (!is_first && !(every >= 1 && report->step % (int64_t)every == 0))
        return;
    struct state_row *row = add_row(trainer);
    row->grad_norm = report->grad_norm;
    row->learning_rate = report->learning_rate;
    if (history->loss_count)
        row->loss = history->loss_sum / (double)history->loss_count;
    history->loss_sum = 0;
    history->loss_count = 0;
}

void trainer_state_eval(struct trainer *trainer, double eval_loss)
{
    if (is_wanted(trainer))
        add_row(trainer)->eval_loss = eval_loss;
}

void trainer_state_fini(struct trainer *trainer)
{
    free(trainer->history.rows);
    trainer->history = (struct state_history){0};
}

/* --- reading -------------------------------------------------------------- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void take_history(struct trainer *trainer, const json_t *list)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
    {
        double step = number_of(entry, "step");
        if (!(step >= 0 && step <= (double)trainer->state.step))
            continue;
        struct state_row *row = add_row(trainer);
        *row = (struct state_row){
                (int64_t)step,
                number_of(entry, "epoch"),
                number_of(entry, "loss"),
                number_of(entry, "grad_norm"),
                number_of(entry, "learning_rate"),
                number_of(entry, "eval_loss")};
    }
}

void trainer_state_resume(struct trainer *trainer)
{
    char path[PATH_MAX];
    json_t *json;
    if (!is_wanted(trainer) ||
        strlen(trainer->resumed_from) + sizeof TRAINER_STATE_FILE + 1 >
                sizeof path)
        return;
    fs_join(path, sizeof path, trainer->resumed_from, TRAINER_STATE_FILE);
    bool is_there;
    enum zd_status status = fs_look(path, &is_there);
    if (status == ZD_OK && !is_there)
        return;
    if (status == ZD_OK)
        status = json_parse_file_upto(
                path, (uint64_t)1 << 32, (size_t)1 << 26, &json);
    if (status != ZD_OK) {
        zd_log_warning(
                "the history of " TRAINER_STATE_FILE " begins anew: %s",
                zd_error_get()->what);
        zd_error_clear();
        return;
    }
    take_history(trainer, json_object_get(json, "log_history"));
    json_decref(json);
}

/* --- writing -------------------------------------------------------------- */

static void add_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static json_t *history_json(const struct state_history *history)
{
    json_t *list = json_array();
    for (size_t i = 0; i < history->count; i++) {
        const struct state_row *row = &history->rows[i];
        json_t *entry = json_pack("{s:I}", "step", row->step);
        add_real(entry, "epoch", row->epoch);
        add_real(entry, "loss", row->loss);
        add_real(entry, "grad_norm", row->grad_norm);
        add_real(entry, "learning_rate", row->learning_rate);
        add_real(entry, "eval_loss", row->eval_loss);
        json_array_append_new(list, entry);
    }
    return list;
}

/* The best one, where there is a checkpoint of its step. */
static void add_best(json_t *json, const struct trainer *trainer)
{
    const struct train_state *state = &trainer->state;
    char name[64], path[PATH_MAX];
    bool has_best = !isnan(state->best_eval_loss) && state->best_step >= 0;
    checkpoint_name(name, sizeof name, state->best_step);
    checkpoint_place(path, trainer->job->job.output_dir, state->best_step);
    bool is_there =
            has_best && (state->best_step == state->step || fs_is_dir(path));
    json_object_update_new(
            json,
            json_pack(
                    "{s:o, s:o, s:o}", "best_global_step",
                    has_best ? json_integer(state->best_step) : json_null(),
                    "best_metric",
                    json_number_or_null(has_best ? state->best_eval_loss : NAN),
                    "best_model_checkpoint",
                    is_there ? json_string(name) : json_null()));
}

/* Steps of the whole run, in passes over the data; whole, as there. */
static int64_t epochs(const struct trainer *trainer)
{
    double samples = (double)trainer->state.max_steps *
                     (double)trainer->plan.global_batch;
    int64_t M = dataset_samples(trainer->train_data);
    return M ? (int64_t)ceil(samples / (double)M) : 0;
}

static json_t *state_json(const struct trainer *trainer)
{
    const struct train_state *state = &trainer->state;
    const struct job_plan *plan = &trainer->plan;
    double settings[SETTINGS];
    live_settings(trainer, settings);
    double logging = settings[SET_LOGGING_STEPS];
    json_t *json = json_pack(
            "{s:I, s:I, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:{}, "
            "s:i, s:n, s:n}",
            "eval_steps", (json_int_t)live_eval_steps(trainer), "global_step",
            (json_int_t)state->step, "is_hyper_param_search", false,
            "is_local_process_zero", true, "is_world_process_zero", true,
            "log_history", history_json(&trainer->history), "logging_steps",
            logging >= 1 ? (json_int_t)logging : 0, "max_steps",
            (json_int_t)state->max_steps, "num_input_tokens_seen",
            (json_int_t)state->tokens_seen, "num_train_epochs",
            (json_int_t)epochs(trainer), "save_steps",
            (json_int_t)live_save_steps(trainer), "stateful_callbacks",
            "train_batch_size", plan->per_device, "trial_name", "trial_params");
    add_best(json, trainer);
    add_real(json, "epoch", epoch_now(trainer));
    add_real(
            json, "total_flos",
            (double)state->tokens_seen *
                    model_flops_per_token(
                            &plan->config, &plan->table, plan->shape.T));
    return json;
}

char *trainer_state_text(const struct trainer *trainer)
{
    if (!is_wanted(trainer))
        return NULL;
    json_t *json = state_json(trainer);
    char *text = zd_must(json_dumps(
            json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)));
    json_decref(json);
    size_t length = strlen(text);
    text = zd_must(realloc(text, length + 2));
    strcpy(text + length, "\n");
    return text;
}

void trainer_state_write(const struct trainer *trainer)
{
    char path[PATH_MAX], *text = trainer_state_text(trainer);
    if (!text)
        return;
    fs_join(path, sizeof path, trainer->job->job.output_dir,
            TRAINER_STATE_FILE);
    if (fs_write_file(path, text, strlen(text)) != ZD_OK) {
        zd_log_warning("%s", zd_error_get()->what);
        zd_error_clear();
    }
    free(text);
}
