/* set.c - settings that change while a run goes on (train_live). */
#include "train/command/commands.h"

#include "base/units.h"

#include <math.h>

/* Tenfold, with room for the rounding of the schedule. */
#define TENFOLD (10 * (1 - 1e-9))

static enum zd_status check_range(const struct train_command *command)
{
    int given = 0;
    for (int id = 0; id < SETTINGS; id++) {
        const struct train_setting *setting = &train_settings[id];
        double value = command->value[id];
        if (!command->given[id])
            continue;
        given++;
        if (!(value >= setting->min && value <= setting->max) ||
            (setting->is_above_min && value == setting->min) ||
            (setting->is_integer && value != floor(value)))
            return ZD_FAIL(
                    ZD_ERR_USAGE, "E1005", "%s cannot be %.17g", setting->name,
                    value);
    }
    if (!given)
        return ZD_FAIL(ZD_ERR_USAGE, "E1005", "no setting is given");
    return ZD_OK;
}

/* What does not depend on this rank alone: all come to the same answer. */
static enum zd_status check_set(
        const struct trainer *trainer, const struct train_command *command)
{
    ZD_TRY(check_range(command));
    if (command->given[SET_SAVE_STEPS] && !live_saves_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not save by a number of steps");
        return zd_fail_help("checkpoint.save_strategy = \"steps\"");
    }
    if (command->given[SET_EVAL_STEPS] && !live_evaluates_by_steps(trainer)) {
        ZD_FAIL(ZD_ERR_USAGE, "E1006",
                "this run does not evaluate by a number of steps");
        return zd_fail_help(
                "eval.eval_strategy = \"steps\", and [[data.eval]]");
    }
    if (command->given[SET_LEARNING_RATE] &&
        !(live_scheduled_rate(trainer) > 0))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E1007",
                "the schedule's learning rate is 0 at step %lld and cannot be "
                "scaled",
                (long long)trainer->state.step + 1);
    return ZD_OK;
}

/* The loader's thread reads the plan, so it stops meanwhile. */
static enum zd_status change_accumulation(
        struct trainer *trainer, int accumulation,
        struct command_outcome *outcome)
{
    batches_stop(trainer);
    enum zd_status status = batches_accumulate(trainer, accumulation);
    if (status == ZD_ERR_UNFIT || status == ZD_ERR_CONFIG)
        command_fail(outcome); /* all ranks have the same plan */
    else
        ZD_TRY(status);
    return comm_agree(trainer->comm, batches_start(trainer));
}

static json_t *settings_json(const struct trainer *trainer)
{
    double values[SETTINGS];
    json_t *json = json_object();
    live_settings(trainer, values);
    for (int id = 0; id < SETTINGS; id++) {
        bool is_whole = train_settings[id].is_integer && !isnan(values[id]);
        json_object_set_new(
                json, train_settings[id].name,
                is_whole ? json_integer((json_int_t)values[id])
                         : json_number_or_null(values[id]));
    }
    return json;
}

/* A rate: what it does to the schedule, and whether it may be a slip. `before`:
 * what `set` would have had to give to change nothing. */
static void tell_rate(
        const struct trainer *trainer, double before, double now,
        json_t *result)
{
    char note[256], warning[160], times[UNITS_TEXT];
    json_object_set_new(
            result, "peak_learning_rate",
            json_number_or_null(live_peak_rate(trainer)));
    if (live_rate_note(trainer, note, sizeof note))
        json_object_set_new(result, "note", json_string(note));
    if (now / before < TENFOLD)
        return;
    snprintf(
            warning, sizeof warning,
            "learning_rate rises %s-fold, from %.4g to %.4g",
            units_number(now / before, 3, times), before, now);
    json_object_set_new(result, "warning", json_string(warning));
}

static double rate_to_set(const struct trainer *trainer)
{
    double peak = live_peak_rate(trainer);
    return isnan(peak) ? live_learning_rate(trainer) : peak;
}

enum zd_status settings_set(
        struct trainer *trainer, const struct train_command *command,
        struct command_outcome *outcome)
{
    if (check_set(trainer, command) != ZD_OK)
        return command_fail(outcome);
    if (command->given[SET_ACCUMULATION])
        ZD_TRY(change_accumulation(
                trainer, (int)command->value[SET_ACCUMULATION], outcome));
    if (outcome->status != ZD_OK)
        return ZD_OK;
    double rate = rate_to_set(trainer);
    live_set(trainer, command);
    save_outdated(trainer);
    outcome->result = settings_json(trainer);
    if (command->given[SET_LEARNING_RATE])
        tell_rate(
                trainer, rate, command->value[SET_LEARNING_RATE],
                outcome->result);
    return ZD_OK;
}
