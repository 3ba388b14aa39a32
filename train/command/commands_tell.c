/* commands_tell.c - what is heard of commands: rank 0's control, and an
 * event. */
#include "train/command/commands.h"

#include "base/log.h"

#include <string.h>

static json_t *id_or_null(int64_t id)
{
    return id >= 0 ? json_integer((json_int_t)id) : json_null();
}

static json_t *settings_json(const struct train_command *command)
{
    json_t *settings = json_object();
    for (int id = 0; id < SETTINGS; id++) {
        double value = command->value[id];
        if (command->given[id])
            json_object_set_new(
                    settings, train_settings[id].name,
                    train_settings[id].is_integer
                            ? json_integer((json_int_t)value)
                            : json_real(value));
    }
    return settings;
}

/* The members of its event: "command", its parameters, "uid", "pid". New
 * reference. */
static json_t *command_json(const struct train_command *command)
{
    json_t *json =
            json_pack("{s:s}", "command", train_command_name(command->kind));
    switch (command->kind) {
    case COMMAND_SAMPLE:
        json_object_set_new(json, "prompt", json_string(command->prompt));
        json_object_set_new(
                json, "max_new_tokens", json_integer(command->max_new_tokens));
        break;
    case COMMAND_STOP:
        json_object_set_new(json, "checkpoint", json_boolean(command->save));
        break;
    case COMMAND_PROFILE:
        json_object_set_new(json, "steps", json_integer(command->steps));
        break;
    case COMMAND_SET: {
        json_t *settings = settings_json(command);
        json_object_update(json, settings);
        json_decref(settings);
        break;
    }
    default:
        break;
    }
    json_object_set_new(json, "uid", id_or_null(command->uid));
    json_object_set_new(json, "pid", id_or_null(command->pid));
    return json;
}

/* What the log has of it; checkpoints, evaluations and samples have lines of
 * their own. */
static void say_done(
        const struct train_command *command, int64_t step, const json_t *result)
{
    const char *note = json_string_at(result, "note");
    const char *warning = json_string_at(result, "warning");
    switch (command->kind) {
    case COMMAND_PAUSE:
        zd_log_info("paused after step %lld", (long long)step);
        break;
    case COMMAND_RESUME:
        zd_log_info("resumed after step %lld", (long long)step);
        break;
    case COMMAND_SET:
        for (int id = 0; id < SETTINGS; id++)
            if (command->given[id])
                zd_log_info(
                        "set %s = %.10g after step %lld",
                        train_settings[id].name, command->value[id],
                        (long long)step);
        if (note)
            zd_log_info("%s", note);
        if (warning)
            zd_log_warning("%s", warning);
        break;
    default:
        break;
    }
}

void command_tell(
        struct trainer *trainer, const struct train_command *command,
        const struct command_outcome *outcome)
{
    const struct train_control *control = trainer->observer->control;
    bool failed = outcome->status != ZD_OK;
    int64_t step = outcome->was_before ? outcome->step : trainer->state.step;
    if (!trainer_is_first(trainer))
        return;
    if (failed)
        zd_log_warning(
                "%s was not done, the run %s: %s",
                train_command_name(command->kind),
                trainer->is_paused ? "stays paused" : "goes on",
                outcome->error.what);
    else
        say_done(command, step, outcome->result);
    json_t *event = command_json(command);
    if (failed)
        json_object_set_new(event, "error", json_string(outcome->error.what));
    events_tell(trainer->events, "command", step, event);
    control->done(
            control->ctx, command, step, failed ? &outcome->error : NULL,
            outcome->result);
}
