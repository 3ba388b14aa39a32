/* show_events.c - events and samples as lines. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- events --- */

/* Members of a command beside those that every event has. */
static void print_command(
        const struct look *look, const json_t *event, FILE *out)
{
    static const char *const known[] = {"id",  "time",    "event", "step",
                                        "uid", "command", "error", "pid"};
    json_t *rest = json_copy((json_t *)event);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        json_object_del(rest, known[i]);
    char *text = json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fill_print(look, event, "[ {command|s}]", out);
    if (text && strlen(text) > strlen("{}")) {
        fputc(' ', out);
        text_print(look, text, false, out);
    }
    fill_print(
            look, event,
            "[ (uid {uid|w}, process {pid|w})][ failed: {error.message|s}]"
            "[ failed: {error|s}]",
            out);
    free(text);
    json_decref(rest);
}

static enum look_style style_of(const char *kind)
{
    if (strcmp(kind, "warning") == 0)
        return LOOK_WARN;
    if (strcmp(kind, "hang") == 0)
        return LOOK_BAD;
    return strcmp(kind, "step") == 0 ? LOOK_DIM : LOOK_ACCENT;
}

/* What an event says of itself: its own template, or that of all others. */
static const struct {
    const char *kind, *text;
} texts[] = {
        {"checkpoint", "[ {path|s}][ seconds {seconds|n}]"},
        {"sample", "[ {prompt|s}] ->[ {text|s}]"},
        {"straggler",
         " rank {rank|w} on {host|s}: {ratio|2} times the median of the ranks"},
        {"hang", " rank {rank|w} on {host|s}: waited for in {operation|s} for "
                 "{seconds|d}"},
        {NULL, "[ loss {loss|n}][ eval_loss {eval_loss|n}][ grad_norm "
               "{grad_norm|n}][ learning_rate {learning_rate|n}][ {state|s}]"
               "[ {message|s}][ {path|s}][ from {from|s}]"}};

void show_event(const struct look *look, const json_t *event, FILE *out)
{
    const char *kind = json_text_of(event, "event", "?");
    char *name = fill(look, event, "{event|s}");
    int i = 0;
    fill_print(look, event, "{time|t}  step ", out);
    fprintf(out, "%-7.0f %s%-10s%s", fmax(fill_number(event, "step"), 0),
            look_style(look, style_of(kind)), name,
            look_style(look, LOOK_PLAIN));
    free(name);
    while (texts[i].kind && strcmp(texts[i].kind, kind) != 0)
        i++;
    if (strcmp(kind, "command") == 0)
        print_command(look, event, out);
    else
        fill_print(look, event, texts[i].text, out);
    fputc('\n', out);
}

/* --- samples --- */

void show_samples(const struct look *look, const json_t *answer, FILE *out)
{
    json_t *samples = json_object_get(answer, "samples"), *sample;
    size_t count = json_array_size(samples);
    for (size_t i = count; i-- > 0;) { /* the newest is what one sees last */
        sample = json_array_get(samples, i);
        fputs(i + 1 < count ? "\n" : "", out);
        fputs(look_style(look, LOOK_DIM), out);
        fill_print(look, sample, "step {step|w}, {time|t}", out);
        fprintf(out, "%s\n", look_style(look, LOOK_PLAIN));
        show_sample(look, sample, out);
    }
    if (!count)
        fputs("no samples yet\n", out);
}

void show_sample(const struct look *look, const json_t *sample, FILE *out)
{
    fputs(look_style(look, LOOK_BOLD), out);
    text_print(look, json_text_of(sample, "prompt", ""), true, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    text_print(look, json_text_of(sample, "text", ""), true, out);
    fputc('\n', out);
}
