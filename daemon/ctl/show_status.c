#include "daemon/ctl/ctl.h"
#include "daemon/ctl/grid.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- pairs of a name and a value, in one column or two --- */

enum { NAME_COLUMNS = 15, VALUE_COLUMNS = 20, PAIRS_MAX = 24 };

struct pair {
    const char *name; /* "": nothing here */
    char value[96];
};

static void print_pair(
        const struct look *look, const struct pair *pair, int columns,
        bool pads, FILE *out)
{
    int room = columns > 0 ? columns - 2 - NAME_COLUMNS : 96;
    fprintf(out, "  %s%-*s%s", look_style(look, LOOK_DIM), NAME_COLUMNS,
            pair->name, look_style(look, LOOK_PLAIN));
    text_fit(look, pair->value, room > 4 ? room : 4, pads, out);
}

/* `left` and `right` beside each other where there is room, else below. */
static void print_pairs(
        const struct look *look, const struct pair *left,
        const struct pair *right, int count, FILE *out)
{
    int half = 2 + NAME_COLUMNS + VALUE_COLUMNS;
    bool is_wide = look->columns == 0 || look->columns >= 2 * half;
    for (int i = 0; i < count; i++) {
        bool has_right = right[i].name[0] != '\0';
        print_pair(
                look, &left[i], is_wide ? half : look->columns,
                is_wide && has_right, out);
        if (is_wide && has_right)
            print_pair(
                    look, &right[i], look->columns ? look->columns - half : 0,
                    false, out);
        fputc('\n', out);
    }
    for (int i = 0; !is_wide && i < count; i++)
        if (right[i].name[0]) {
            print_pair(look, &right[i], look->columns, false, out);
            fputc('\n', out);
        }
}

static void set_number(struct pair *pair, const char *name, double value)
{
    char text[TEXT_SHORT];
    pair->name = name;
    snprintf(pair->value, sizeof pair->value, "%s", text_number(value, text));
}

static void set_count(
        struct pair *pair, const char *name, double value, const char *unit)
{
    char text[TEXT_SHORT];
    pair->name = name;
    snprintf(
            pair->value, sizeof pair->value, "%s%s", text_count(value, text),
            isfinite(value) ? unit : "");
}

/* "210 GFLOP/s" */
static void set_flops(struct pair *pair, const char *name, double value)
{
    char text[TEXT_SHORT];
    pair->name = name;
    text_count(value, text);
    size_t digits = strcspn(text, "kMGTPE");
    snprintf(
            pair->value, sizeof pair->value, "%.*s%s%s%s", (int)digits, text,
            isfinite(value) ? " " : "", text + digits,
            isfinite(value) ? "FLOP/s" : "");
}

static void set_duration(struct pair *pair, const char *name, double value)
{
    char text[TEXT_SHORT];
    pair->name = name;
    snprintf(pair->value, sizeof pair->value, "%s", text_duration(value, text));
}

/* --- the head: name, state, progress --- */

double status_share(const json_t *status)
{
    double step = json_real_of(status, "step");
    double steps = json_real_of(status, "max_steps");
    return steps > 0 && step >= 0 ? fmin(step / steps, 1) : 0;
}

static bool has_ended(const char *state)
{
    return strcmp(state, "done") == 0 || strcmp(state, "stopped") == 0 ||
           strcmp(state, "failed") == 0 || strcmp(state, "died") == 0;
}

const char *status_state(const json_t *status, char text[TEXT_SHORT])
{
    const char *state = json_text_of(status, "state", "?");
    const char *by = json_text_of(status, "stopped_by", NULL);
    json_t *stalled = json_object_get(status, "stalled");
    double step = json_real_of(status, "step");
    if (strcmp(state, "died") == 0)
        snprintf(
                text, TEXT_SHORT, "died after step %.0f",
                isfinite(step) ? step : 0);
    else if (strcmp(state, "stopped") == 0 && by)
        snprintf(text, TEXT_SHORT, "stopped (%s)", by);
    else if (strcmp(state, "stalled") == 0 && stalled)
        snprintf(
                text, TEXT_SHORT, "stalled (rank %.0f)",
                json_real_of(stalled, "rank"));
    else
        return state;
    return text;
}

static void print_head(const struct look *look, const json_t *status, FILE *out)
{
    char words[TEXT_SHORT];
    const char *state = status_state(status, words);
    bool is_over = has_ended(json_text_of(status, "state", "?"));
    double step = json_real_of(status, "step"),
           steps = json_real_of(status, "max_steps");
    char eta[TEXT_SHORT], right[96] = "";
    int columns = look->columns ? look->columns : 80;
    columns = columns > 100 ? 100 : columns;
    text_duration(json_real_of(status, "eta_seconds"), eta);
    snprintf(
            right, sizeof right, "step %.0f of %.0f, %.0f %%",
            isfinite(step) ? step : 0, isfinite(steps) ? steps : 0,
            100 * status_share(status));
    int room = columns - (int)strlen(right) - (int)strlen(state) - 4;
    char *name = text_escape(
            look, json_text_of(status, "job", "?"),
            strlen(json_text_of(status, "job", "?")), false);
    fputs(look_style(look, LOOK_BOLD), out);
    int used = text_fit(
            look, name ? name : "", room > 8 ? room : columns - 12, false, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    fprintf(out, "  %s", look_style(look, look_of_state(state)));
    text_print(look, state, false, out);
    fputs(look_style(look, LOOK_PLAIN), out);
    if (room > 8)
        fprintf(out, "%*s%s\n", room - used + 2, "", right);
    else
        fprintf(out, "\n%s\n", right);
    free(name);
    int tail = is_over ? 0 : (int)strlen(eta) + 6;
    look_bar(look, status_share(status), columns - tail, out);
    if (is_over)
        fputc('\n', out);
    else
        fprintf(out, "  eta %s\n", eta);
}

/* --- what follows --- */

static void print_numbers(
        const struct look *look, const json_t *status, FILE *out)
{
    struct pair left[7] = {{""}}, right[7] = {{""}};
    double best = json_real_of(status, "best_eval_loss");
    double mfu = json_real_of(status, "mfu");
    double skipped = json_real_of(status, "skipped_steps");
    char text[TEXT_SHORT];
    set_number(&left[0], "loss", json_real_of(status, "loss"));
    set_number(&left[1], "eval loss", json_real_of(status, "eval_loss"));
    if (isfinite(best) && best != json_real_of(status, "eval_loss"))
        snprintf(
                left[1].value + strlen(left[1].value), 32, " best %s",
                text_number(best, text));
    set_number(
            &left[2], "learning rate", json_real_of(status, "learning_rate"));
    set_number(&left[3], "grad norm", json_real_of(status, "grad_norm"));
    set_number(&left[4], "epoch", json_real_of(status, "epoch"));
    left[5].name = "skipped steps";
    snprintf(
            left[5].value, sizeof left[5].value, "%.0f",
            isfinite(skipped) ? skipped : 0);
    set_count(
            &right[0], "speed", json_real_of(status, "tokens_per_second"),
            " tok/s");
    set_duration(&right[1], "step time", json_real_of(status, "step_seconds"));
    set_flops(
            &right[2], "compute",
            json_real_of(status, "model_flops_per_second"));
    if (isfinite(mfu))
        snprintf(
                right[2].value + strlen(right[2].value), 32, ", mfu %.2f", mfu);
    set_count(&right[3], "tokens", json_real_of(status, "tokens"), "");
    set_count(&right[4], "samples", json_real_of(status, "samples"), "");
    set_duration(&right[5], "elapsed", json_real_of(status, "elapsed_seconds"));
    int count = 6;
    if (isfinite(json_real_of(status, "loss_scale")))
        set_count(
                &left[count++], "loss scale",
                json_real_of(status, "loss_scale"), "");
    print_pairs(look, left, right, count, out);
}

/* Bytes of the escaped text that fit `columns`, at a blank where there is one;
 * all of it where the width is 0. */
static size_t line_bytes(const char *text, int columns)
{
    size_t bytes = strlen(text), blank = 0;
    char part[TEXT_MAX];
    if (columns <= 0 || text_width(text) <= columns)
        return bytes;
    bytes = 0;
    for (size_t at = 1; text[at - 1] && at < sizeof part; at++) {
        bool is_whole = ((unsigned char)text[at] & 0xc0) != 0x80;
        snprintf(part, sizeof part, "%.*s", (int)at, text);
        if (is_whole && text_width(part) > columns)
            break;
        if (is_whole)
            bytes = at;
        if (text[at] == ' ')
            blank = at;
    }
    return blank ? blank : bytes ? bytes : 1;
}

/* A name and a value of any length, which goes on in the lines below. */
static void print_line(
        const struct look *look, const char *name, const char *value, FILE *out)
{
    char *safe = text_escape(look, value, strlen(value), false);
    const char *text = safe ? safe : "";
    int columns = look->columns > 0 ? look->columns - 2 - NAME_COLUMNS : 0;
    do {
        size_t bytes = line_bytes(text, columns);
        fprintf(out, "  %s%-*s%s%.*s\n", look_style(look, LOOK_DIM),
                NAME_COLUMNS, name, look_style(look, LOOK_PLAIN), (int)bytes,
                text);
        text += bytes;
        text += strspn(text, " ");
        name = "";
    } while (*text);
    free(safe);
}

/* "NVIDIA H200, rank 0: 21.5 GiB held, 21.4 GiB planned, of 140 GiB" */
static void print_gpu(const struct look *look, const json_t *gpu, FILE *out)
{
    char line[256], held[TEXT_SHORT], planned[TEXT_SHORT], total[TEXT_SHORT];
    if (!json_is_object(gpu))
        return;
    snprintf(
            line, sizeof line, "%s, rank %.0f: %s held, %s planned, of %s",
            json_text_of(gpu, "name", "-"), fmax(json_real_of(gpu, "rank"), 0),
            text_bytes(json_real_of(gpu, "held"), held),
            text_bytes(json_real_of(gpu, "planned"), planned),
            text_bytes(json_real_of(gpu, "total"), total));
    print_line(look, "gpu", line, out);
}

static void print_adapters(
        const struct look *look, const json_t *status, FILE *out)
{
    char line[512];
    size_t i;
    json_t *name;
    const json_t *adapters = json_object_get(status, "adapters");
    const json_t *targets = json_object_get(adapters, "target_modules");
    if (!json_is_object(adapters))
        return;
    int used = snprintf(
            line, sizeof line, "%s, r %.0f, on",
            json_is_true(json_object_get(adapters, "use_dora")) ? "DoRA"
                                                                : "LoRA",
            json_real_of(adapters, "r"));
    if (json_is_string(targets))
        used += snprintf(
                line + used, sizeof line - (size_t)used, " %.200s",
                json_string_value(targets));
    json_array_foreach(targets, i, name) if (used < 400) used += snprintf(
            line + used, sizeof line - (size_t)used, "%s%.60s", i ? ", " : " ",
            json_string_value(name));
    print_line(look, "adapters", line, out);
}

static void print_facts(
        const struct look *look, const json_t *status, FILE *out)
{
    char line[512], text[TEXT_SHORT], some[TEXT_SHORT], age[TEXT_SHORT];
    double world = json_real_of(status, "world");
    const char *run_name = json_text_of(status, "run_name", "");
    if (run_name[0])
        print_line(look, "run", run_name, out);
    double all = json_real_of(status, "parameters");
    double trained = json_real_of(status, "trainable_parameters");
    bool has_base = trained < all;
    snprintf(
            line, sizeof line, "%s parameters%s%s%s%.40s%s%s, %s",
            text_count(all, text), has_base ? ", " : "",
            has_base ? text_count(trained, some) : "",
            has_base ? " of them trained, the others in " : "",
            has_base ? json_text_of(status, "base_format", "-") : "",
            has_base ? "; computes in " : ", ",
            json_text_of(status, "dtype", "-"),
            json_text_of(status, "optimizer", "-"));
    print_line(look, "model", line, out);
    print_adapters(look, status, out);
    snprintf(
            line, sizeof line, "%.0f rank%s, ZeRO stage %.0f, %s",
            isfinite(world) ? world : 0, world == 1 ? "" : "s",
            fmax(json_real_of(status, "stage"), 0),
            json_text_of(status, "device", "-"));
    print_line(look, "world", line, out);
    print_gpu(look, json_object_get(status, "gpu"), out);
    double micros = json_real_of(status, "gradient_accumulation_steps");
    snprintf(
            line, sizeof line,
            "%.0f samples: %.0f per rank, %.0f micro-batch%s",
            fmax(json_real_of(status, "global_batch_size"), 0),
            fmax(json_real_of(status, "per_device_train_batch_size"), 0),
            fmax(micros, 0), micros == 1 ? "" : "es");
    print_line(look, "batch", line, out);
    double saved = json_real_of(status, "last_checkpoint_time");
    if (isfinite(json_real_of(status, "last_checkpoint_step")) &&
        json_text_of(status, "last_checkpoint", NULL))
        snprintf(
                line, sizeof line, "step %.0f, %s ago: %s",
                json_real_of(status, "last_checkpoint_step"),
                text_duration(look->now - saved, age),
                json_text_of(status, "last_checkpoint", ""));
    else
        snprintf(line, sizeof line, "none yet");
    print_line(look, "checkpoint", line, out);
    print_line(look, "output", json_text_of(status, "output_dir", "-"), out);
    double pid = json_real_of(status, "pid");
    snprintf(
            line, sizeof line, "%s, process %.0f, since %s",
            json_text_of(status, "host", "-"), isfinite(pid) ? pid : 0,
            text_time(look, json_real_of(status, "started"), text));
    print_line(look, "host", line, out);
}

/* Where the time goes: the phases by their share. */
static void print_phases(
        const struct look *look, const json_t *status, FILE *out)
{
    json_t *phases = json_object_get(status, "phase_seconds"), *value;
    const char *name;
    char line[512] = "";
    double total = 0;
    json_object_foreach(phases, name, value) total += json_number_value(value);
    json_object_foreach(phases, name, value)
    {
        double share = json_number_value(value) / total;
        size_t used = strlen(line);
        if (total > 0 && share >= 0.005)
            snprintf(
                    line + used, sizeof line - used, "%s%s %.0f %%",
                    used ? ", " : "", name, 100 * share);
    }
    if (line[0])
        print_line(look, "time", line, out);
}

/* Who keeps the others, in what and since when. */
static void print_stalled(
        const struct look *look, const json_t *status, FILE *out)
{
    json_t *stalled = json_object_get(status, "stalled");
    char line[400], since[TEXT_SHORT];
    if (!json_is_object(stalled))
        return;
    snprintf(
            line, sizeof line,
            "rank %.0f on %s at step %.0f: waited for in %s "
            "since %s",
            json_real_of(stalled, "rank"), json_text_of(stalled, "host", "?"),
            json_real_of(stalled, "step"),
            json_text_of(stalled, "operation", "?"),
            text_time(look, json_real_of(stalled, "since"), since));
    print_line(look, "stalled", line, out);
}

static void print_notes(
        const struct look *look, const json_t *status, FILE *out)
{
    json_t *list = json_object_get(status, "pending"), *item;
    double deadline = json_real_of(status, "deadline");
    char text[TEXT_SHORT], line[1024];
    size_t i;
    line[0] = '\0';
    json_array_foreach(list, i, item)
    {
        size_t used = strlen(line);
        snprintf(
                line + used, sizeof line - used, "%s%s", used ? ", " : "",
                json_is_string(item) ? json_string_value(item) : "?");
    }
    if (line[0])
        print_line(look, "waiting", line, out);
    if (isfinite(deadline))
        print_line(look, "deadline", text_time(look, deadline, text), out);
    list = json_object_get(status, "warnings");
    json_array_foreach(list, i, item)
    {
        snprintf(
                line, sizeof line, "%s step %.0f: %s",
                text_time(look, json_real_of(item, "time"), text),
                fmax(json_real_of(item, "step"), 0),
                json_text_of(item, "message", ""));
        print_line(look, i ? "" : "warnings", line, out);
    }
}

void show_status(const struct look *look, const json_t *status, FILE *out)
{
    print_head(look, status, out);
    fputc('\n', out);
    print_numbers(look, status, out);
    fputc('\n', out);
    print_facts(look, status, out);
    print_phases(look, status, out);
    print_stalled(look, status, out);
    print_notes(look, status, out);
}

void show_status_line(const struct look *look, const json_t *status, FILE *out)
{
    char when[TEXT_SHORT], loss[TEXT_SHORT], speed[TEXT_SHORT], eta[TEXT_SHORT];
    char words[TEXT_SHORT];
    fprintf(out, "%s ", text_time(look, look->now, when));
    text_print(look, status_state(status, words), false, out);
    fprintf(out, " step %.0f/%.0f (%.0f%%) loss %s %s tok/s eta %s\n",
            fmax(json_real_of(status, "step"), 0),
            fmax(json_real_of(status, "max_steps"), 0),
            100 * status_share(status),
            text_number(json_real_of(status, "loss"), loss),
            text_count(json_real_of(status, "tokens_per_second"), speed),
            text_duration(json_real_of(status, "eta_seconds"), eta));
}

/* --- ls --- */

void show_jobs(const struct look *look, const json_t *jobs, FILE *out)
{
    static const struct grid_column columns[] = {
            {"NAME", false, 99}, {"STATE", false, 90}, {"STEP", true, 80},
            {"%", true, 85},     {"LOSS", true, 70},   {"TOK/S", true, 50},
            {"ETA", true, 75},   {"RANKS", true, 40},  {"UPTIME", true, 30},
            {"PID", true, 20},   {"OUTPUT", false, 10}};
    struct grid *grid =
            grid_create(columns, sizeof columns / sizeof columns[0]);
    json_t *job;
    size_t i;
    char text[TEXT_SHORT];
    json_array_foreach(jobs, i, job)
    {
        const char *state = json_text_of(job, "state", "no answer");
        double step = json_real_of(job, "step"), pid = json_real_of(job, "pid");
        grid_add(grid, look, "%s", json_text_of(job, "name", "?"));
        grid_add(grid, look, "%s", state);
        grid_style(grid, look_of_state(state));
        if (isfinite(step)) {
            grid_add(
                    grid, look, "%.0f/%.0f", step,
                    fmax(json_real_of(job, "max_steps"), 0));
            grid_add(grid, look, "%.0f", 100 * status_share(job));
        } else {
            grid_add(grid, look, "-");
            grid_add(grid, look, "-");
        }
        grid_add(
                grid, look, "%s", text_number(json_real_of(job, "loss"), text));
        grid_add(
                grid, look, "%s",
                text_count(json_real_of(job, "tokens_per_second"), text));
        grid_add(
                grid, look, "%s",
                text_duration(json_real_of(job, "eta_seconds"), text));
        grid_add(
                grid, look, "%s", text_count(json_real_of(job, "world"), text));
        grid_add(
                grid, look, "%s",
                text_duration(json_real_of(job, "elapsed_seconds"), text));
        grid_add(grid, look, isfinite(pid) ? "%.0f" : "-", pid);
        grid_add(grid, look, "%s", json_text_of(job, "output_dir", "-"));
    }
    grid_print(grid, look, out);
    grid_destroy(grid);
}
