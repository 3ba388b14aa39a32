/* table.c - every command and every option of zerodctl. */
#include "daemon/ctl/ctl.h"

#define ARG(field)   offsetof(struct cli_args, field)
#define COUNT(table) (int)(sizeof table / sizeof table[0])

#define LOOK_AT "inspect a job"
#define STEER   "control it"

/* clang-format off */
static const struct cli_option options[] = {
{"job", 'j', "JOB", CLI_TEXT, ARG(job), NULL, "The job of this name; default: the only one that runs"},
{"socket", 'S', "SOCKET", CLI_TEXT, ARG(socket), NULL, "The job that listens on this socket"},
{"dir", 0, "OUT", CLI_TEXT, ARG(dir), NULL, "The job of this output folder; if its socket cannot be reached, its files"},
{"output", 'o', "table|json", CLI_CHOICE, ARG(output), "table|json", "Output format; json is the API's object"},
{"watch", 'w', NULL, CLI_FLAG, ARG(watch), NULL, "Repeat until the job ends"},
{"interval", 'i', "TIME", CLI_DURATION, ARG(interval), NULL, "Time between two updates (2s)"},
{"follow", 'f', NULL, CLI_FLAG, ARG(follow), NULL, "Follow new output until the job ends"},
{"rank", 0, "N", CLI_NUMBER, ARG(rank), NULL, "Show the log of this rank (0)"},
{"tail", 'n', "N", CLI_NUMBER, ARG(tail), NULL, "Only the last N"},
{"since-step", 0, "N", CLI_NUMBER, ARG(since_step), NULL, "Only steps after N"},
{"steps", 0, NULL, CLI_FLAG, ARG(with_steps), NULL, "Include every step"},
{"csv", 0, NULL, CLI_FLAG, ARG(csv), NULL, "Print lines of CSV"},
{"max-new-tokens", 0, "N", CLI_COUNT, ARG(max_new_tokens), NULL, "Generate at most N tokens; default: the job's"},
{"chat", 0, NULL, CLI_FLAG, ARG(chat), NULL, "Treat the prompt as a user's message; stop at the end of the assistant's turn"},
{"now", 0, NULL, CLI_FLAG, ARG(now), NULL, "Stop without a checkpoint; steps since the last one are lost"},
{"no-wait", 0, NULL, CLI_FLAG, ARG(no_wait), NULL, "Return as soon as the command is queued"},
{"timeout", 0, "TIME", CLI_DURATION, ARG(timeout), NULL, "Wait no longer than this; the command stays queued"},
{"port", 0, "N", CLI_COUNT, ARG(port), NULL, "Port on the loopback; default: a free one"},
{"help", 'h', NULL, CLI_FLAG, ARG(line.help), NULL, "Show this help"},
};

static const struct cli_command commands[] = {
{"ls", "", 0, 0, "output", "",
    "List the running jobs", command_ls, LOOK_AT, NULL},
{"status", "", 0, 0, "watch interval output", "",
    "Show state and progress of a job", command_look, LOOK_AT,
    "With -w it is redrawn every two seconds; in a pipe each update is one line, with -o json one object per line."},
{"top", "", 0, 0, "watch interval", "",
    "Live view of a job on one screen", command_look, LOOK_AT,
    "It is redrawn every two seconds until Ctrl-C. "
    "In a pipe it prints one frame and exits; with -w it prints a frame every two seconds."},
{"ranks", "", 0, 0, "watch interval output", "",
    "Show step, memory, traffic and last report of each rank", command_look, LOOK_AT,
    "LAG: steps behind the foremost rank. MEMORY: what the job holds of PLANNED, on device and host; RESIDENT and PEAK: the whole process. "
    "SENT: bytes to other ranks. SEEN: time since the rank's last report. A narrow screen hides some columns."},
{"memory", "", 0, 0, "watch interval output", "",
    "Show planned and taken memory of each rank, by kind", command_look, LOOK_AT, NULL},
{"logs", "", 0, 0, "follow rank tail", "",
    "Print lines of a rank's log", command_logs, LOOK_AT, NULL},
{"events", "", 0, 0, "follow tail steps output", "",
    "List events: evaluations, checkpoints, samples, warnings, commands", command_events, LOOK_AT,
    "With -o json one object per line, like the lines of events.jsonl. --steps needs the job's socket."},
{"samples", "", 0, 0, "tail output", "",
    "Show text samples of the model, newest last", command_look, LOOK_AT, NULL},
{"metrics", "[NAME..]", 0, CLI_OPERANDS_MAX, "since-step tail csv output", "",
    "Print values by step; without a name, one line per series", command_look, LOOK_AT,
    "NAME is a series like train/loss, or the end of its name: loss, learning_rate. --csv prints one column per series."},
{"plot", "[NAME]", 0, 1, "watch interval", "",
    "Draw a series over the steps (train/loss)", command_look, LOOK_AT, NULL},
{"config", "[KEY..]", 0, CLI_OPERANDS_MAX, "output", "",
    "Show every setting of the job and its origin", command_look, LOOK_AT,
    "KEY is a key like optim.learning_rate, or a section like optim."},
{"web", "", 0, 0, "port", "",
    "Show the page of a job in a browser", command_web, LOOK_AT,
    "Serves the page on the loopback to whoever has the printed address, until Ctrl-C or the end of the job."},

{"checkpoint", "", 0, 0, "no-wait timeout output", "",
    "Save a checkpoint now", command_act, STEER, NULL},
{"eval", "", 0, 0, "no-wait timeout output", "",
    "Evaluate now", command_act, STEER, NULL},
{"sample", "[PROMPT]", 0, 1, "chat max-new-tokens no-wait timeout output", "",
    "Generate samples now; without a prompt, the job's own", command_act, STEER, NULL},
{"pause", "", 0, 0, "no-wait timeout output", "",
    "Pause at the next step boundary", command_act, STEER, NULL},
{"resume", "", 0, 0, "no-wait timeout output", "",
    "Resume a paused job", command_act, STEER, NULL},
{"set", "KEY=VALUE..", 1, CLI_OPERANDS_MAX, "no-wait timeout output", "",
    "Change a setting of the running job", command_act, STEER,
    "Settings: learning_rate (during the warm-up its peak, afterwards the rate of the next step; the rest of the schedule is scaled), max_grad_norm, gradient_accumulation_steps, "
    "logging_steps, save_steps, eval_steps. Names as in the job file work too, like optim.learning_rate."},
{"stop", "", 0, 0, "now no-wait timeout output", "",
    "Save a checkpoint and end the job", command_act, STEER,
    "Returns when the job has ended. --timeout: default 300 s."},
{"profile", "[STEPS]", 0, 1, "no-wait timeout output", "",
    "Trace the next steps (3) for chrome://tracing and ui.perfetto.dev", command_act, STEER, NULL},
};
/* clang-format on */

static const struct cli_exit exits[] = {
        {0, "done"},         {64, "command line or several jobs"},
        {66, "no such job"}, {69, "no answer, died, failed or not now"},
        {77, "refused"},
};

static const struct cli_args defaults = {
        .tail = -1,
        .timeout = -1,
};

const struct cli_program zerodctl_program = {
        .name = "zerodctl",
        .summary = "inspect and control a running zerod job",
        .examples =
                "  zerodctl status                   of the only running job\n"
                "  zerodctl -j JOB top               one of several, live\n"
                "  zerodctl set learning_rate=1e-4   from the next step on\n",
        .hint = "zerodctl status tells of the running job; zerodctl --help "
                "lists the commands",
        .commands = commands,
        .command_count = COUNT(commands),
        .options = options,
        .option_count = COUNT(options),
        .common = "job socket dir help",
        .exits = exits,
        .exit_count = COUNT(exits),
        .args_bytes = sizeof(struct cli_args),
        .defaults = &defaults,
};
