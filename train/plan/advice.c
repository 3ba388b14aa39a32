/* advice.c - a plan's predicted time, what binds, and what would help. */
#include "train/plan/advice.h"

#include "base/log.h"
#include "base/units.h"
#include "train/plan/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- the one change ------------------------------------------------------- */

/* A prediction cannot tell a smaller gain from its own error. */
static const double worth_telling = 0.98;

static enum zd_status find_change(
        const struct train_job *job, const struct job_plan *plan,
        const struct plan_machine *machine, int local_size,
        struct plan_advice *out)
{
    const struct train_job settled = plan_settled(job, plan);
    const struct plan_search search = {
            .job = &settled,
            .world = plan->world,
            .local_size = local_size,
            .machine = machine};
    const struct plan_query query = {
            .search = &search,
            .space = plan_space_fit(job, 0),
            .keeps_batch = true,
            .score = PLAN_BY_TIME,
            .changes_most = 1,
            .limits = &plan->limits};
    struct plan_found *found;
    int count;
    enum zd_status status = plan_search_run(&query, &found, &count);
    if (status == ZD_OK && count &&
        found[0].predicted.step_seconds <=
                worth_telling * out->predicted.step_seconds)
        out->change = found[0];
    free(found);
    return status;
}

enum zd_status plan_advise(
        const struct train_job *job, const struct job_plan *plan,
        const struct plan_machine *machine, int local_size,
        struct plan_advice *out)
{
    *out = (struct plan_advice){
            .predicted = plan_predict(plan, machine),
            .steps = job->train.max_steps};
    if (out->steps > 0)
        out->seconds = (double)out->steps * out->predicted.step_seconds;
    return find_change(job, plan, machine, local_size, out);
}

/* --- output -------------------------------------------------------- */

static json_t *numbers(
        const char *const names[], const double values[], int count)
{
    json_t *json = json_object();
    for (int i = 0; i < count; i++)
        json_object_set_new(json, names[i], json_real(values[i]));
    return json;
}

json_t *plan_prediction_json(const struct plan_prediction *predicted)
{
    return json_pack(
            "{s:f, s:f, s:s, s:o, s:o, s:o}", "step_seconds",
            predicted->step_seconds, "tokens_per_second",
            predicted->tokens_per_second, "binds",
            plan_resource_names[predicted->binds], "phases",
            numbers(plan_part_names, predicted->parts, PLAN_PARTS), "busy",
            numbers(plan_resource_names, predicted->busy, PLAN_RESOURCES),
            "exposed",
            numbers(plan_exposed_names, predicted->exposed, PLAN_EXPOSED));
}

static void words_of(const struct plan_advice *advice, char *out, int bytes)
{
    struct text_buffer text = {.out = out, .bytes = (size_t)bytes};
    settings_print(
            advice->change.settings, advice->change.setting_count, &text);
}

json_t *plan_advice_json(
        const struct plan_advice *advice, const struct plan_machine *machine)
{
    const struct plan_found *change = &advice->change;
    json_t *json = plan_prediction_json(&advice->predicted);
    char words[800] = "";
    words_of(advice, words, sizeof words);
    json_t *more = json_pack(
            "{s:s, s:b, s:o*, s:o*}", "machine", machine->name, "calibrated",
            machine->is_measured, "days",
            advice->seconds > 0 ? json_real(advice->seconds / 86400) : NULL,
            "change",
            change->setting_count
                    ? json_pack(
                              "{s:s, s:f}", "arguments", words, "step_seconds",
                              change->predicted.step_seconds)
                    : NULL);
    json_object_update(json, more);
    json_decref(more);
    return json;
}

static void print_time(
        const struct plan_advice *advice, int digits, FILE *stream)
{
    bool has_steps = advice->seconds > 0;
    double seconds = has_steps ? advice->seconds
                               : 1e9 / advice->predicted.tokens_per_second;
    char time[UNITS_TEXT];
    if (has_steps)
        fprintf(stream, "         %" PRId64 " steps: ", advice->steps);
    else
        fputs("         the data decides the number of steps; 1e9 tokens: ",
              stream);
    fprintf(stream, "%s\n", units_time(seconds, digits, time));
}

void plan_advice_print(
        const struct plan_advice *advice, const struct job_plan *plan,
        const struct plan_machine *machine, FILE *stream)
{
    const struct plan_prediction *predicted = &advice->predicted;
    int digits = plan_machine_digits(machine);
    char text[UNITS_TEXT], words[800] = "";
    fprintf(stream, "predicted %s s a step, ",
            units_number(predicted->step_seconds, digits, text));
    fprintf(stream, "%s tokens/s, on %s%s\n",
            units_number(predicted->tokens_per_second, digits + 1, text),
            machine->name,
            !machine->is_measured ? ", by its table"
            : plan->world > 1 && !machine->wire_is_measured
                    ? ", as measured, but for the wire"
                    : ", as measured");
    if (machine->is_measured || machine->is_guess)
        fprintf(stream, "         %s\n",
                machine->is_guess ? plan_guess_words : machine->what);
    for (int p = 0; p < PLAN_PARTS; p++)
        fprintf(stream, "%s %s %s s", p ? "," : "        ", plan_part_names[p],
                units_number(predicted->parts[p], digits, text));
    fputc('\n', stream);
    for (int e = 0; e < PLAN_EXPOSED; e++)
        fprintf(stream, "%s %s %s s",
                e ? "," : "         of these the device waits for:",
                plan_exposed_names[e],
                units_number(predicted->exposed[e], digits, text));
    fputc('\n', stream);
    print_time(advice, digits, stream);
    fprintf(stream, "         %s binds\n",
            plan_resource_words[predicted->binds]);
    words_of(advice, words, sizeof words);
    if (advice->change.setting_count)
        fprintf(stream, "         the change that helps most: %s (%s s)\n",
                words,
                units_number(
                        advice->change.predicted.step_seconds, digits, text));
    else
        fputs("         no single change that fits helps by 2 %\n", stream);
}

void plan_warn_of_places(
        const struct job_plan *plan, const struct plan_prediction *predicted)
{
    if (plan->mesh.tp == 1 || plan->is_within[ZERO_TP])
        return;
    zd_log_warning(
            "parallel.tp_size = %d crosses hosts of %d ranks: its collectives "
            "take %.3g s of a step of %.3g s, by prediction",
            plan->mesh.tp, plan->local_size, predicted->busy[PLAN_PLACES],
            predicted->step_seconds);
}
