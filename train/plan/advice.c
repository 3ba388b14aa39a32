#include "train/plan/advice.h"

#include <inttypes.h>

/* --- the one change ------------------------------------------------------- */

struct changes {
    const struct train_job *job;
    const struct job_plan *plan; /* of the job as it is */
    const struct plan_machine *machine;
    struct job_plan tried;
    struct plan_advice *out;
};

/* Kept when it is the fastest so far. */
static enum zd_status try_change(
        struct changes *changes, const struct plan_candidate *candidate, int B)
{
    const struct job_plan *plan = changes->plan;
    const struct train_job changed = candidate_job(changes->job, candidate);
    struct plan_prediction predicted;
    bool fits = false;
    struct job_choice choice = {
            .checkpointing = plan->shape.checkpointing,
            .B = B,
            .A = plan->per_device * plan->accumulation / B,
            .moves_most = PLAN_MOVES_MOST};
    if (candidate->option[CHOOSE_MODE])
        choice.checkpointing = candidate_mode(candidate);
    if (!candidate_is_sound(changes->job, plan->world, candidate))
        return ZD_OK;
    if (plan_try_choice(
                &changed, &choice, &plan->limits, &changes->tried, &fits) !=
                ZD_OK ||
        !fits) {
        zd_error_clear(); /* there is no such plan */
        return ZD_OK;
    }
    ZD_TRY(plan_predict(&changes->tried, changes->machine, &predicted));
    double best = changes->out->changed_seconds;
    if (best > 0 && predicted.step_seconds >= best)
        return ZD_OK;
    changes->out->changed_seconds = predicted.step_seconds;
    changes->out->setting_count = candidate_settings(
            changes->job, candidate, &choice, changes->out->settings);
    return ZD_OK;
}

static enum zd_status try_batches(struct changes *changes)
{
    const struct plan_candidate other = {
            .option = {[CHOOSE_BATCH] = BATCH_OTHER}};
    int samples = changes->plan->per_device * changes->plan->accumulation;
    for (int B = 1; B <= samples; B *= 2)
        if (samples % B == 0 && B != changes->plan->per_device)
            ZD_TRY(try_change(changes, &other, B));
    return ZD_OK;
}

static enum zd_status try_all(struct changes *changes)
{
    const struct plan_space space = plan_space_fit(changes->job, 0);
    ZD_TRY(try_batches(changes));
    for (int d = 0; d < CHOICES; d++)
        for (int option = 1; d != CHOOSE_BATCH && option < 8; option++) {
            struct plan_candidate one = {{0}};
            one.option[d] = (unsigned char)option;
            if (space.options[d] & (1u << option))
                ZD_TRY(try_change(changes, &one, changes->plan->per_device));
        }
    return ZD_OK;
}

/* A change that gains less is within what a prediction cannot tell apart. */
static const double worth_telling = 0.98;

static enum zd_status find_change(struct changes *changes, int local_size)
{
    struct plan_advice *out = changes->out;
    enum zd_status status = plan_begin(
            changes->job, changes->plan->world, local_size, NULL,
            &changes->tried);
    if (status == ZD_OK)
        status = try_all(changes);
    job_plan_fini(&changes->tried);
    if (out->changed_seconds > worth_telling * out->predicted.step_seconds) {
        out->changed_seconds = 0;
        out->setting_count = 0;
    }
    return status;
}

/* --- were it twice as fast ------------------------------------------------ */

static void speed_up_rates(struct plan_rates *rates)
{
    for (int kind = 0; kind < RATE_PRODUCTS; kind++)
        for (int t = 0; t < RATE_TOKENS; t++)
            for (int w = 0; w < RATE_WIDTHS; w++)
                rates->products[kind][t][w] *= 2;
    for (int pass = 0; pass < RATE_PASSES; pass++) {
        for (int l = 0; l < RATE_LENGTHS; l++)
            rates->attention[pass][l] *= 2;
        rates->adapter[pass] *= 2;
        rates->norm[pass] *= 2;
        rates->begin[pass] /= 2;
        rates->activation[pass] *= 2;
    }
    rates->add *= 2;
    rates->rope *= 2;
    rates->loss *= 2;
    rates->round *= 2;
    rates->squares *= 2;
    rates->update *= 2;
    rates->update_8bit *= 2;
}

static enum zd_status ease(struct changes *changes)
{
    struct plan_machine machine = *changes->machine;
    struct plan_rates rates[RATE_TYPES];
    struct plan_prediction predicted;
    switch (changes->out->predicted.binds) {
    case PLAN_COMPUTE:
        machine.products_16 *= 2;
        machine.products_32 *= 2;
        machine.memory *= 2;
        for (int type = 0; machine.rates && type < RATE_TYPES; type++) {
            rates[type] = machine.rates[type];
            speed_up_rates(&rates[type]);
        }
        machine.rates = machine.rates ? rates : NULL;
        break;
    case PLAN_WIRE:
        machine.inside *= 2;
        machine.between *= 2;
        break;
    case PLAN_HOST:
        machine.host *= 2;
        break;
    case PLAN_DISK:
        machine.disk *= 2;
        break;
    default:
        machine.link *= 2;
    }
    ZD_TRY(plan_predict(changes->plan, &machine, &predicted));
    changes->out->eased_seconds = predicted.step_seconds;
    return ZD_OK;
}

enum zd_status plan_advise(
        const struct train_job *job, const struct job_plan *plan,
        const struct plan_machine *machine, int local_size, double price,
        struct plan_advice *out)
{
    struct changes changes = {
            .job = job, .plan = plan, .machine = machine, .out = out};
    *out = (struct plan_advice){.steps = job->train.max_steps, .price = price};
    ZD_TRY(plan_predict(plan, machine, &out->predicted));
    if (out->steps > 0)
        out->seconds = (double)out->steps * out->predicted.step_seconds;
    ZD_TRY(ease(&changes));
    return find_change(&changes, local_size);
}

/* --- as it is told -------------------------------------------------------- */

json_t *plan_prediction_json(const struct plan_prediction *predicted)
{
    json_t *busy = json_object(), *phases = json_object();
    for (int r = 0; r < PLAN_RESOURCES; r++)
        json_object_set_new(
                busy, plan_resource_name((enum plan_resource)r),
                json_real(predicted->busy[r]));
    for (int p = 0; p < PLAN_PARTS; p++)
        json_object_set_new(
                phases, plan_part_name((enum plan_part)p),
                json_real(predicted->parts[p]));
    return json_pack(
            "{s:f, s:f, s:s, s:o, s:o}", "step_seconds",
            predicted->step_seconds, "tokens_per_second",
            predicted->tokens_per_second, "binds",
            plan_resource_name(predicted->binds), "phases", phases, "busy",
            busy);
}

static void words_of(const struct plan_advice *advice, char *out, int bytes)
{
    struct text_buffer text = {.out = out, .bytes = (size_t)bytes};
    settings_print(advice->settings, advice->setting_count, &text);
}

static double days(double seconds)
{
    return seconds / 86400;
}

/* Of so many seconds on all devices. */
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
    json_t *json = plan_prediction_json(&advice->predicted);
    double tokens = advice->predicted.tokens_per_second;
    json_object_set_new(json, "machine", json_string(machine->name));
    json_object_set_new(json, "calibrated", json_boolean(machine->is_measured));
    if (advice->seconds > 0)
        json_object_set_new(json, "days", json_real(days(advice->seconds)));
    if (advice->price > 0 && advice->seconds > 0)
        json_object_set_new(
                json, "money", json_real(money(advice, plan, advice->seconds)));
    if (advice->price > 0)
        json_object_set_new(
                json, "money_per_1e9_tokens",
                json_real(money(advice, plan, 1e9 / tokens)));
    json_object_set_new(
            json, "step_seconds_if_twice_as_fast",
            json_real(advice->eased_seconds));
    if (advice->changed_seconds > 0) {
        char words[800] = "";
        words_of(advice, words, sizeof words);
        json_object_set_new(
                json, "change",
                json_pack(
                        "{s:s, s:f}", "arguments", words, "step_seconds",
                        advice->changed_seconds));
    }
    return json;
}

static void print_cost(
        const struct plan_advice *advice, const struct job_plan *plan,
        int digits, FILE *stream)
{
    double tokens = advice->predicted.tokens_per_second;
    if (advice->seconds > 0)
        fprintf(stream, "         %" PRId64 " steps: %.*g days", advice->steps,
                digits, days(advice->seconds));
    else
        fprintf(stream,
                "         steps are not known without the data; 1e9 tokens: "
                "%.*g days",
                digits, days(1e9 / tokens));
    if (advice->price > 0)
        fprintf(stream, ", %.*f at %g for a device and hour",
                digits > 1 ? 2 : 0,
                money(advice, plan,
                      advice->seconds > 0 ? advice->seconds : 1e9 / tokens),
                advice->price);
    fputc('\n', stream);
}

void plan_advice_print(
        const struct plan_advice *advice, const struct job_plan *plan,
        const struct plan_machine *machine, FILE *stream)
{
    const struct plan_prediction *predicted = &advice->predicted;
    int digits = plan_machine_digits(machine);
    fprintf(stream, "predicted %.*g s a step, %.*g tokens/s, on %s%s\n",
            digits, predicted->step_seconds, digits + 1,
            predicted->tokens_per_second, machine->name,
            !machine->is_measured ? ", by its table"
            : plan->world > 1 && !machine->wire_is_measured
                    ? ", as measured, but for the wire"
                    : ", as measured");
    if (machine->is_measured || machine->is_guess)
        fprintf(stream, "         %s\n",
                machine->is_guess ? plan_guess_words : machine->what);
    fputs("         ", stream);
    for (int p = 0; p < PLAN_PARTS; p++)
        fprintf(stream, "%s%s %.*g s", p ? ", " : "",
                plan_part_name((enum plan_part)p), digits,
                predicted->parts[p]);
    fputc('\n', stream);
    print_cost(advice, plan, digits, stream);
    fprintf(stream,
            "         %s binds: twice as fast, a step would take %.*g s\n",
            plan_resource_name(predicted->binds), digits,
            advice->eased_seconds);
    if (advice->changed_seconds > 0) {
        char words[800] = "";
        words_of(advice, words, sizeof words);
        fprintf(stream, "         the change that helps most: %s (%.*g s)\n",
                words, digits, advice->changed_seconds);
    } else {
        fputs("         no single change that fits helps by 2 %\n", stream);
    }
}
