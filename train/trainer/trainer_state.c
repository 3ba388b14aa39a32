#include "train/trainer/trainer_state.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "base/log.h"
#include "base/text_stream.h"
#include "train/trainer/between.h"
#include "train/trainer/live.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const struct trainer *trainer)
{
    return trainer_is_first(trainer) && trainer->job->report.trainer_state;
}

static double epoch_now(const struct trainer *trainer)
{
    return (double)trainer->state.samples_taken /
           (double)dataset_samples(trainer->train_data);
}

/* --- the history -----------------------------------------------------------
 */

static void add_row(struct state_history *history, const struct state_row *row)
{
    if (history->count == history->capacity) {
        size_t capacity = history->capacity ? 2 * history->capacity : 256;
        struct state_row *rows =
                realloc(history->rows, capacity * sizeof *rows);
        if (!rows)
            return;
        history->rows = rows;
        history->capacity = capacity;
    }
    history->rows[history->count++] = *row;
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
    struct state_row row = {
            .step = report->step,
            .epoch = epoch_now(trainer),
            .loss = history->loss_count
                            ? history->loss_sum / (double)history->loss_count
                            : NAN,
            .grad_norm = report->grad_norm,
            .learning_rate = report->learning_rate,
            .eval_loss = NAN};
    history->loss_sum = 0;
    history->loss_count = 0;
    add_row(history, &row);
}

void trainer_state_eval(struct trainer *trainer, double eval_loss)
{
    struct state_row row = {
            .step = trainer->state.step,
            .epoch = epoch_now(trainer),
            .loss = NAN,
            .grad_norm = NAN,
            .learning_rate = NAN,
            .eval_loss = eval_loss};
    if (is_wanted(trainer))
        add_row(&trainer->history, &row);
}

void trainer_state_fini(struct trainer *trainer)
{
    free(trainer->history.rows);
    trainer->history = (struct state_history){0};
}

/* --- reading ---------------------------------------------------------------
 */

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
        struct state_row row = {
                .step = (int64_t)step,
                .epoch = number_of(entry, "epoch"),
                .loss = number_of(entry, "loss"),
                .grad_norm = number_of(entry, "grad_norm"),
                .learning_rate = number_of(entry, "learning_rate"),
                .eval_loss = number_of(entry, "eval_loss")};
        add_row(&trainer->history, &row);
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

/* --- writing ---------------------------------------------------------------
 */

struct line {
    FILE *stream;
    const char *indent;
    bool has_members;
};

static void member(struct line *line, const char *key)
{
    fprintf(line->stream, "%s%s\"%s\": ", line->has_members ? ",\n" : "\n",
            line->indent, key);
    line->has_members = true;
}

static void real(struct line *line, const char *key, double value)
{
    if (!isfinite(value))
        return;
    member(line, key);
    fprintf(line->stream, "%.17g", value);
}

static void integer(struct line *line, const char *key, int64_t value)
{
    member(line, key);
    fprintf(line->stream, "%lld", (long long)value);
}

/* As JSON has it: null, true, "..". */
static void word(struct line *line, const char *key, const char *value)
{
    member(line, key);
    fputs(value, line->stream);
}

static void write_row(FILE *stream, const struct state_row *row)
{
    struct line line = {stream, "      ", false};
    fputs("    {", stream);
    real(&line, "epoch", row->epoch);
    real(&line, "eval_loss", row->eval_loss);
    real(&line, "grad_norm", row->grad_norm);
    real(&line, "learning_rate", row->learning_rate);
    real(&line, "loss", row->loss);
    integer(&line, "step", row->step);
    fputs("\n    }", stream);
}

static void write_history(
        struct line *line, const struct state_history *history)
{
    member(line, "log_history");
    fputc('[', line->stream);
    for (size_t i = 0; i < history->count; i++) {
        fputs(i ? ",\n" : "\n", line->stream);
        write_row(line->stream, &history->rows[i]);
    }
    fputs(history->count ? "\n  ]" : "]", line->stream);
}

/* The best one, where there is a checkpoint of its step. */
static void write_best(struct line *line, const struct trainer *trainer)
{
    const struct train_state *state = &trainer->state;
    char name[64], quoted[80], path[PATH_MAX];
    bool has_best = !isnan(state->best_eval_loss) && state->best_step >= 0;
    checkpoint_name(name, sizeof name, state->best_step);
    fs_join(path, sizeof path, trainer->job->job.output_dir, name);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    if (has_best) {
        integer(line, "best_global_step", state->best_step);
        real(line, "best_metric", state->best_eval_loss);
    } else {
        word(line, "best_global_step", "null");
        word(line, "best_metric", "null");
    }
    bool is_there =
            has_best && (state->best_step == state->step || fs_is_dir(path));
    word(line, "best_model_checkpoint", is_there ? quoted : "null");
}

static double flops(const struct trainer *trainer)
{
    return (double)trainer->state.tokens_seen * model_flops_per_token(
                                                        &trainer->plan.config,
                                                        &trainer->plan.table,
                                                        trainer->plan.shape.T);
}

/* Steps of the whole run, in passes over the data; whole, as there. */
static int64_t epochs(const struct trainer *trainer)
{
    double samples = (double)trainer->state.max_steps *
                     (double)trainer->plan.global_batch;
    return (int64_t)ceil(
            samples / (double)dataset_samples(trainer->train_data));
}

static void write_state(FILE *stream, const struct trainer *trainer)
{
    struct line line = {stream, "  ", false};
    const struct train_state *state = &trainer->state;
    double settings[SETTINGS];
    live_settings(trainer, settings);
    double logging = settings[SET_LOGGING_STEPS];
    fputc('{', stream);
    write_best(&line, trainer);
    real(&line, "epoch", epoch_now(trainer));
    integer(&line, "eval_steps", live_eval_steps(trainer));
    integer(&line, "global_step", state->step);
    word(&line, "is_hyper_param_search", "false");
    word(&line, "is_local_process_zero", "true");
    word(&line, "is_world_process_zero", "true");
    write_history(&line, &trainer->history);
    integer(&line, "logging_steps", logging >= 1 ? (int64_t)logging : 0);
    integer(&line, "max_steps", state->max_steps);
    integer(&line, "num_input_tokens_seen", state->tokens_seen);
    integer(&line, "num_train_epochs", epochs(trainer));
    integer(&line, "save_steps", live_save_steps(trainer));
    word(&line, "stateful_callbacks", "{}");
    real(&line, "total_flos", flops(trainer));
    integer(&line, "train_batch_size", trainer->plan.per_device);
    word(&line, "trial_name", "null");
    word(&line, "trial_params", "null");
    fputs("\n}\n", stream);
}

char *trainer_state_text(const struct trainer *trainer)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = is_wanted(trainer) ? text_stream_open(&text, &bytes) : NULL;
    if (!stream)
        return NULL;
    write_state(stream, trainer);
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
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
