/* advice.c - a plan's predicted time, what binds, and what would help. */
#include "train/plan/advice.h"

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
    struct train_job settled = *job; /* what "auto" has chosen is chosen */
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
    settled.train.gradient_checkpointing = plan->shape.checkpointing;
    enum zd_status status = plan_search_run(&query, &found, &count);
    if (status == ZD_OK && count &&
        found[0].predicted.step_seconds <=
                worth_telling * out->predicted.step_seconds)
        out->change = found[0];
    free(found);
    return status;
}

/* --- were it twice as fast ------------------------------------------------ */

/* The machine whose resource is twice as fast. */
static void ease(
        const struct job_plan *plan, const struct plan_machine *given,
        struct plan_advice *out)
{
    struct plan_machine machine = *given;
    double *const speeds[PLAN_RESOURCES][4] = {
            [PLAN_COMPUTE] =
                    {&machine.products[0], &machine.products[1],
                     &machine.memory, &machine.update},
            [PLAN_WIRE] = {&machine.inside, &machine.between},
            [PLAN_DOWN] = {&machine.link},
            [PLAN_UP] = {&machine.link},
            [PLAN_HOST] = {&machine.host},
            [PLAN_DISK] = {&machine.disk}};
    enum plan_resource binds = out->predicted.binds;
    for (int i = 0; i < 4 && speeds[binds][i]; i++)
        *speeds[binds][i] *= 2;
    out->eased_seconds = plan_predict(plan, &machine).step_seconds;
}

enum zd_status plan_advise(
        const struct train_job *job, const struct job_plan *plan,
        const struct plan_machine *machine, int local_size, double price,
        struct plan_advice *out)
{
    *out = (struct plan_advice){
            .predicted = plan_predict(plan, machine),
            .steps = job->train.max_steps,
            .price = price};
    if (out->steps > 0)
        out->seconds = (double)out->steps * out->predicted.step_seconds;
    ease(plan, machine, out);
    return find_change(job, plan, machine, local_size, out);
}

/* --- output -------------------------------------------------------- */

json_t *plan_prediction_json(const struct plan_prediction *predicted)
{
    json_t *busy = json_object(), *phases = json_object();
    for (int r = 0; r < PLAN_RESOURCES; r++)
        json_object_set_new(
                busy, plan_resource_names[r], json_real(predicted->busy[r]));
    for (int p = 0; p < PLAN_PARTS; p++)
        json_object_set_new(
                phases, plan_part_names[p], json_real(predicted->parts[p]));
    return json_pack(
            "{s:f, s:f, s:s, s:o, s:o}", "step_seconds",
            predicted->step_seconds, "tokens_per_second",
            predicted->tokens_per_second, "binds",
            plan_resource_names[predicted->binds], "phases", phases, "busy",
            busy);
}

static void words_of(const struct plan_advice *advice, char *out, int bytes)
{
    struct text_buffer text = {.out = out, .bytes = (size_t)bytes};
    settings_print(
            advice->change.settings, advice->change.setting_count, &text);
}

/* The cost of so many seconds on all devices. */
static double money(
        const struct plan_advice *advice, const struct job_plan *plan,
        double seconds)
{
    return seconds / 3600 * advice->price * plan->world;
}

json_t *plan_advice_json(
        const struct plan_advice *advice, const struct job_plan *plan,
        const struct plan_machine *machine)
{
    const struct plan_found *change = &advice->change;
    json_t *json = plan_prediction_json(&advice->predicted);
    double tokens = advice->predicted.tokens_per_second,
           seconds = advice->seconds;
    bool has_price = advice->price > 0;
    char words[800] = "";
    words_of(advice, words, sizeof words);
    json_t *more = json_pack(
            "{s:s, s:b, s:o*, s:o*, s:o*, s:f, s:o*}", "machine", machine->name,
            "calibrated", machine->is_measured, "days",
            seconds > 0 ? json_real(seconds / 86400) : NULL, "money",
            has_price && seconds > 0 ? json_real(money(advice, plan, seconds))
                                     : NULL,
            "money_per_1e9_tokens",
            has_price ? json_real(money(advice, plan, 1e9 / tokens)) : NULL,
            "step_seconds_if_twice_as_fast", advice->eased_seconds, "change",
            change->setting_count
                    ? json_pack(
                              "{s:s, s:f}", "arguments", words, "step_seconds",
                              change->predicted.step_seconds)
                    : NULL);
    json_object_update(json, more);
    json_decref(more);
    return json;
}

static void print_cost(
        const struct plan_advice *advice, const struct job_plan *plan,
        int digits, FILE *stream)
{
    double tokens = advice->predicted.tokens_per_second;
    bool has_steps = advice->seconds > 0;
    double seconds = has_steps ? advice->seconds : 1e9 / tokens;
    char time[UNITS_TEXT];
    if (has_steps)
        fprintf(stream, "         %" PRId64 " steps: ", advice->steps);
    else
        fputs("         the data decides the number of steps; 1e9 tokens: ",
              stream);
    fputs(units_time(seconds, digits, time), stream);
    if (advice->price > 0)
        fprintf(stream, ", costs %.*f (%.2f per device-hour)",
                digits > 1 ? 2 : 0, money(advice, plan, seconds),
                advice->price);
    fputc('\n', stream);
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
    print_cost(advice, plan, digits, stream);
    fprintf(stream,
            "         %s binds: twice as fast, a step would take %s s\n",
            plan_resource_names[predicted->binds],
            units_number(advice->eased_seconds, digits, text));
    words_of(advice, words, sizeof words);
    if (advice->change.setting_count)
        fprintf(stream, "         the change that helps most: %s (%s s)\n",
                words,
                units_number(
                        advice->change.predicted.step_seconds, digits, text));
    else
        fputs("         no single change that fits helps by 2 %\n", stream);
}
