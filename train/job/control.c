#include "train/job/control.h"

#include <string.h>

/* The largest integers that a double holds exactly. */
#define STEPS_MAX 9.0e15

/* Name, key, help; minimum and maximum; whether it is an integer, and whether
 * the minimum is excluded. */
const struct train_setting train_settings[SETTINGS] = {
        [SET_LEARNING_RATE] =
                {"learning_rate", "optim.learning_rate",
                 "Peak rate during the warm-up, afterwards the rate of "
                 "the next step; the rest of the schedule is scaled",
                 0, 1e3, false, true},
        [SET_MAX_GRAD_NORM] =
                {"max_grad_norm", "optim.max_grad_norm",
                 "Clip gradients to this norm; 0 = off", 0, 1e30},
        [SET_ACCUMULATION] =
                {"gradient_accumulation_steps",
                 "train.gradient_accumulation_steps",
                 "Micro-batches of a step; changes the global batch", 1,
                 1 << 24, true},
        [SET_LOGGING_STEPS] =
                {"logging_steps", "log.logging_steps",
                 "Steps between lines on the screen", 1, STEPS_MAX, true},
        [SET_SAVE_STEPS] =
                {"save_steps", "checkpoint.save_steps",
                 "Steps between checkpoints", 1, STEPS_MAX, true},
        [SET_EVAL_STEPS] =
                {"eval_steps", "eval.eval_steps", "Steps between evaluations",
                 1, STEPS_MAX, true},
};

const char *train_command_name(enum train_command_kind kind)
{
    static const char *const names[COMMAND_KINDS] = {
            [COMMAND_CHECKPOINT] = "checkpoint",
            [COMMAND_EVAL] = "eval",
            [COMMAND_SAMPLE] = "sample",
            [COMMAND_PAUSE] = "pause",
            [COMMAND_RESUME] = "resume",
            [COMMAND_STOP] = "stop",
            [COMMAND_SET] = "set",
            [COMMAND_PROFILE] = "profile"};
    return names[kind];
}

const char *train_run_state_name(enum train_run_state state)
{
    static const char *const names[RUN_STATES] = {
            [RUN_STARTING] = "starting", [RUN_RUNNING] = "running",
            [RUN_STALLED] = "stalled",   [RUN_WAITING] = "waiting_for_data",
            [RUN_SAMPLING] = "sampling", [RUN_EVALUATING] = "evaluating",
            [RUN_PAUSED] = "paused",     [RUN_CHECKPOINTING] = "checkpointing",
            [RUN_DONE] = "done",         [RUN_STOPPING] = "stopping",
            [RUN_FAILED] = "failed",     [RUN_STOPPED] = "stopped",
    };
    return names[state];
}

int train_run_state_find(const char *name)
{
    for (int state = 0; state < RUN_STATES; state++)
        if (strcmp(train_run_state_name((enum train_run_state)state), name) ==
            0)
            return state;
    return -1;
}

const char *train_phase_name(enum train_phase phase)
{
    static const char *const names[PHASES] = {
            [PHASE_DATA] = "data",
            [PHASE_FORWARD] = "forward",
            [PHASE_BACKWARD] = "backward",
            [PHASE_REDUCE] = "reduce",
            [PHASE_UPDATE] = "update",
            [PHASE_GATHER] = "gather",
            [PHASE_DOWN] = "down",
            [PHASE_HOST] = "host",
            [PHASE_UP] = "up",
            [PHASE_DISK] = "disk",
            [PHASE_CHECKPOINT] = "checkpoint",
            [PHASE_EVAL] = "eval"};
    return names[phase];
}

json_t *train_gpu_json(const struct train_gpu_report *gpu)
{
    if (!gpu->name[0])
        return json_null();
    return json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "name", gpu->name, "uuid",
            gpu->uuid, "pci", gpu->pci, "total", (json_int_t)gpu->total, "used",
            (json_int_t)gpu->used, "held", (json_int_t)gpu->held, "planned",
            (json_int_t)gpu->planned);
}
