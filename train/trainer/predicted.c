#include "train/trainer/predicted.h"

#include "base/text_buffer.h"
#include "base/units.h"
#include "train/plan/advice.h"
#include "train/plan/calibration.h"
#include "train/trainer/trainer.h"

enum { STEPS_LEAST = 3 };

static void predict(struct trainer *trainer)
{
    struct predicted *predicted = &trainer->predicted;
    struct plan_calibration here;
    char why[400];
    const struct plan_machine *machine =
            plan_machine_default(trainer->plan.backend);
    if (calibration_find(trainer->plan.backend, &here, why))
        machine = calibration_use(&here);
    predicted->of = plan_predict(&trainer->plan, machine);
    predicted->is_known = true;
    snprintf(
            predicted->machine, sizeof predicted->machine, "%s, %s",
            machine->name,
            machine->is_guess      ? plan_guess_words
            : machine->is_measured ? machine->what
                                   : "by its table");
    predicted->digits = plan_machine_digits(machine);
    trainer->plan.predicted = plan_prediction_json(&predicted->of);
    json_object_set_new(
            trainer->plan.predicted, "machine", json_string(machine->name));
    json_object_set_new(
            trainer->plan.predicted, "calibrated",
            json_boolean(machine->is_measured));
}

enum zd_status trainer_predict(struct trainer *trainer)
{
    double seconds = 0;
    if (trainer_is_first(trainer))
        predict(trainer);
    if (trainer->predicted.is_known)
        seconds = trainer->predicted.of.step_seconds;
    ZD_TRY(comm_broadcast(trainer->comm, &seconds, sizeof seconds, 0));
    comm_predict(trainer->comm, seconds);
    return ZD_OK;
}

static const enum train_phase phase_of[PLAN_PARTS] = {
        [PLAN_FORWARD] = PHASE_FORWARD,
        [PLAN_BACKWARD] = PHASE_BACKWARD,
        [PLAN_REDUCE] = PHASE_REDUCE,
        [PLAN_UPDATE] = PHASE_UPDATE,
        [PLAN_GATHER] = PHASE_GATHER};

static void add_parts(
        struct text_buffer *line, const double parts[PLAN_PARTS], int digits)
{
    char number[UNITS_TEXT];
    for (int p = 0; p < PLAN_PARTS; p++)
        text_buffer_add(
                line, "%s%s %s", p ? ", " : "", plan_part_names[p],
                units_number(parts[p], digits, number));
}

void trainer_predicted_lines(
        const struct trainer *trainer, char predicted_out[PREDICTED_LINE],
        char measured_out[PREDICTED_LINE])
{
    const struct predicted *predicted = &trainer->predicted;
    const struct rank_meter *meter = &trainer->meter;
    double parts[PLAN_PARTS], steps = (double)meter->steps - 1;
    struct text_buffer line = {.out = predicted_out, .bytes = PREDICTED_LINE};
    char number[UNITS_TEXT];
    predicted_out[0] = measured_out[0] = '\0';
    if (!predicted->is_known || meter->steps < STEPS_LEAST)
        return;
    for (int p = 0; p < PLAN_PARTS; p++)
        parts[p] = (meter->phase_seconds[phase_of[p]] -
                    meter->first_seconds[phase_of[p]]) /
                   steps;
    text_buffer_add(
            &line, "%s s a step (%s): ",
            units_number(predicted->of.step_seconds, predicted->digits, number),
            predicted->machine);
    add_parts(&line, predicted->of.parts, predicted->digits);
    line = (struct text_buffer){.out = measured_out, .bytes = PREDICTED_LINE};
    text_buffer_add(
            &line, "%s s a step; ",
            units_number(
                    (meter->all_seconds - meter->first_step_seconds) / steps, 3,
                    number));
    add_parts(&line, parts, 3);
}
