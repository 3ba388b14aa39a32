#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- events --- */

static void print_number(const json_t *event, const char *key, FILE *out)
{
    char text[TEXT_SHORT];
    double value = json_real_of(event, key);
    if (isfinite(value))
        fprintf(out, " %s %s", key, text_number(value, text));
}

static void print_text(
        const struct look *look, const json_t *event, const char *key,
        FILE *out)
{
    const char *text = json_text_of(event, key, NULL);
    if (text) {
        fputc(' ', out);
        text_print(look, text, false, out);
    }
}

/* Members of a command beside those that every event has. */
static void print_command(
        const struct look *look, const json_t *event, FILE *out)
{
    static const char *const known[] = {"id",  "time",    "event", "step",
                                        "uid", "command", "error", "pid"};
    const char *key;
    json_t *value;
    print_text(look, event, "command", out);
    json_object_foreach((json_t *)event, key, value)
    {
        bool is_known = json_is_null(value) || json_is_false(value);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (is_known)
            continue;
        char *text = json_dumps(
                value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        fputc(' ', out);
        text_print(look, key, false, out);
        fputc('=', out);
        text_print(look, text ? text : "", false, out);
        free(text);
    }
    if (json_is_integer(json_object_get(event, "uid")))
        fprintf(out, " (uid %.0f, process %.0f)", json_real_of(event, "uid"),
                json_real_of(event, "pid"));
    const json_t *error = json_object_get(event, "error");
    if (error && !json_is_null(error)) {
        fputs(" failed:", out);
        print_text(look, event, "error", out);
        print_text(look, error, "message", out);
    }
}

static enum look_style style_of(const char *kind)
{
    if (strcmp(kind, "warning") == 0)
        return LOOK_WARN;
    if (strcmp(kind, "step") == 0)
        return LOOK_DIM;
    return LOOK_ACCENT;
}

void show_event(const struct look *look, const json_t *event, FILE *out)
{
    const char *kind = json_text_of(event, "event", "?");
    char text[TEXT_SHORT];
    double step = json_real_of(event, "step");
    fprintf(out, "%s  step %-7.0f %s",
            text_time(look, json_real_of(event, "time"), text),
            isfinite(step) ? step : 0, look_style(look, style_of(kind)));
    text_print(look, kind, false, out);
    fprintf(out, "%s%*s", look_style(look, LOOK_PLAIN),
            strlen(kind) < 10 ? 10 - (int)strlen(kind) : 0, "");
    if (strcmp(kind, "command") == 0) {
        print_command(look, event, out);
        fputc('\n', out);
        return;
    }
    print_number(event, "loss", out);
    print_number(event, "eval_loss", out);
    print_number(event, "grad_norm", out);
    print_number(event, "learning_rate", out);
    print_text(look, event, "state", out);
    print_text(look, event, "message", out);
    print_text(look, event, "path", out);
    if (strcmp(kind, "checkpoint") == 0)
        print_number(event, "seconds", out);
    if (strcmp(kind, "sample") == 0) {
        print_text(look, event, "prompt", out);
        fputs(" ->", out);
        print_text(look, event, "text", out);
    }
    print_number(event, "from", out);
    fputc('\n', out);
}

/* --- samples --- */

void show_samples(const struct look *look, const json_t *answer, FILE *out)
{
    json_t *samples = json_object_get(answer, "samples"), *sample;
    char text[TEXT_SHORT];
    size_t count = json_array_size(samples);
    for (size_t i = count; i-- > 0;) { /* the newest is what one sees last */
        sample = json_array_get(samples, i);
        fprintf(out, "%s%sstep %.0f, %s%s\n", i + 1 < count ? "\n" : "",
                look_style(look, LOOK_DIM),
                fmax(json_real_of(sample, "step"), 0),
                text_time(look, json_real_of(sample, "time"), text),
                look_style(look, LOOK_PLAIN));
        fputs(look_style(look, LOOK_BOLD), out);
        text_print(look, json_text_of(sample, "prompt", ""), true, out);
        fputs(look_style(look, LOOK_PLAIN), out);
        text_print(look, json_text_of(sample, "text", ""), true, out);
        fputc('\n', out);
    }
    if (!count)
        fputs("no samples yet\n", out);
}
