/* show_status.c - the page of `zerodctl status`: rows of a name and a template.
 */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_COLUMNS = 15, VALUE_COLUMNS = 20 };

/* A row without a value is left out; of several with one name the first that
 * has a value is shown. */
struct row {
    const char *name, *value;
};

/* --- what templates show beside the job's own members --- */

static void set_words(json_t *status, const char *state)
{
    static const struct row words[] = {
            {"died", "died after step {step|w}"},
            {"stopped", "stopped[ ({stopped_by|s})]"},
            {"stalled", "stalled[ (rank {stalled.rank|w})]"},
            {"failed", "failed[ (rank {hang.rank|w} hung)]"}};
    const struct look plain = {.has_utf8 = true};
    char *text = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(state, words[i].name) == 0)
            text = fill(&plain, status, words[i].value);
    json_object_set_new(status, "words", json_string(text ? text : state));
    free(text);
}

json_t *status_for_show(const struct look *look, const json_t *status)
{
    json_t *copy = json_is_object(status) ? json_copy((json_t *)status)
                                          : json_object();
    double step = fill_number(copy, "step"),
           steps = fill_number(copy, "max_steps"),
           trained = fill_number(copy, "trainable_parameters"),
           best = fill_number(copy, "best_eval_loss");
    double share = steps > 0 && step >= 0 ? fmin(step / steps, 1) : 0;
    bool has_base = trained < fill_number(copy, "parameters");
    set_words(copy, json_text_of(copy, "state", "?"));
    json_object_set_new(copy, "now", json_real(look->now));
    json_object_set_new(copy, "share", json_real(share));
    json_object_set_new(
            copy, "percent",
            json_number_or_null(isfinite(step) ? 100 * share : NAN));
    json_object_set_new(
            copy, "trained", json_number_or_null(has_base ? trained : NAN));
    if (best == fill_number(copy, "eval_loss"))
        json_object_del(copy, "best_eval_loss");
    return copy;
}

enum look_style status_style(const struct look *look, const json_t *status)
{
    return look_of_state(json_text_of(status, "state", "?"));
}

/* --- the head: name, state, progress --- */

static bool has_ended(const char *state)
{
    return strcmp(state, "done") == 0 || strcmp(state, "stopped") == 0 ||
           strcmp(state, "failed") == 0 || strcmp(state, "died") == 0;
}

static void print_head(const struct look *look, const json_t *status, FILE *out)
{
    char *name = fill(look, status, "{job|s}");
    char *state = fill(look, status, "{words|s}");
    char *right =
            fill(look, status, "step {step|w} of {max_steps|w}, {percent|w} %");
    char *eta = fill(look, status, "  eta {eta_seconds|d}");
    bool is_over = has_ended(json_text_of(status, "state", "?"));
    int columns = look->columns ? look->columns : 80;
    columns = columns > 100 ? 100 : columns;
    int room = columns - text_width(right) - text_width(state) - 4;
    fputs(look_style(look, LOOK_BOLD), out);
    int used = text_fit(look, name, room > 8 ? room : columns - 12, false, out);
    fprintf(out, "%s  %s%s%s", look_style(look, LOOK_PLAIN),
            look_style(look, status_style(look, status)), state,
            look_style(look, LOOK_PLAIN));
    if (room > 8)
        fprintf(out, "%*s%s\n", room - used + 2, "", right);
    else
        fprintf(out, "\n%s\n", right);
    look_bar(
            look, fill_number(status, "share"),
            columns - (is_over ? 0 : (int)strlen(eta)), out);
    fprintf(out, "%s\n", is_over ? "" : eta);
    free(name);
    free(state);
    free(right);
    free(eta);
}

/* --- numbers, in one column or two --- */

static void print_pair(
        const struct look *look, const char *name, const char *value,
        int columns, bool pads, FILE *out)
{
    int room = columns > 0 ? columns - 2 - NAME_COLUMNS : 96;
    fprintf(out, "  %s%-*s%s", look_style(look, LOOK_DIM), NAME_COLUMNS, name,
            look_style(look, LOOK_PLAIN));
    text_fit(look, value, room > 4 ? room : 4, pads, out);
}

/* `columns` 0: the last of its line, as long as it is. */
static void print_number(
        const struct look *look, const json_t *status, const struct row *row,
        int columns, bool is_last, FILE *out)
{
    char *value = fill(look, status, row->value);
    if (value[0]) {
        print_pair(look, row->name, value, columns, !is_last, out);
        fputs(is_last ? "\n" : "", out);
    }
    free(value);
}

static void print_numbers(
        const struct look *look, const json_t *status, FILE *out)
{
    static const struct row left[] = {
            {"loss", "{loss|n}"},
            {"eval loss", "{eval_loss|n}[ best {best_eval_loss|n}]"},
            {"learning rate", "{learning_rate|n}"},
            {"grad norm", "{grad_norm|n}"},
            {"epoch", "{epoch|n}"},
            {"skipped steps", "{skipped_steps|w}"},
            {"loss scale", "[{loss_scale|c}]"}};
    static const struct row right[] = {
            {"speed", "{tokens_per_second|c}[{tokens_per_second|.} tok/s]"},
            {"step time", "{step_seconds|d}"},
            {"compute", "{model_flops_per_second|f}[, mfu {mfu|2}]"},
            {"tokens", "{tokens|c}"},
            {"samples", "{samples|c}"},
            {"elapsed", "{elapsed_seconds|d}"}};
    enum {
        LEFT = sizeof left / sizeof left[0],
        RIGHT = sizeof right / sizeof right[0]
    };
    int half = 2 + NAME_COLUMNS + VALUE_COLUMNS;
    bool is_wide = look->columns == 0 || look->columns >= 2 * half;
    for (int i = 0; i < LEFT; i++) {
        bool has_right = is_wide && i < RIGHT;
        print_number(
                look, status, &left[i], is_wide ? half : look->columns,
                !has_right, out);
        if (has_right)
            print_number(
                    look, status, &right[i],
                    look->columns ? look->columns - half : 0, true, out);
    }
    for (int i = 0; !is_wide && i < RIGHT; i++)
        print_number(look, status, &right[i], look->columns, true, out);
}

/* --- facts: a name and a value of any length --- */

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

/* It goes on in the lines below. */
static void print_line(
        const struct look *look, const char *name, const char *text, FILE *out)
{
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
}

static void print_rows(
        const struct look *look, const json_t *status, const struct row *rows,
        size_t count, FILE *out)
{
    const char *shown = "";
    for (size_t i = 0; i < count; i++) {
        char *text = strcmp(rows[i].name, shown) == 0
                             ? NULL
                             : fill(look, status, rows[i].value);
        if (text && text[0]) {
            print_line(look, rows[i].name, text, out);
            shown = rows[i].name;
        }
        free(text);
    }
}

/* Where the time goes: the phases by their share. */
static void print_phases(
        const struct look *look, const json_t *status, FILE *out)
{
    json_t *phases = json_object_get(status, "phase_seconds"), *value;
    json_t *list = json_array();
    const char *name;
    char text[96];
    double total = 0;
    json_object_foreach(phases, name, value) total += json_number_value(value);
    json_object_foreach(phases, name, value)
    {
        double share = total > 0 ? 100 * json_number_value(value) / total : 0;
        snprintf(text, sizeof text, "%.40s %.0f %%", name, share);
        if (share >= 0.5)
            json_array_append_new(list, json_string(text));
    }
    json_t *row = json_pack("{s:o}", "time", list);
    print_rows(look, row, &(struct row){"time", "[{time|s}]"}, 1, out);
    json_decref(row);
}

static void print_warnings(
        const struct look *look, const json_t *status, FILE *out)
{
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(status, "warnings"), i, item)
    {
        char *text = fill(look, item, "{time|t} step {step|w}: {message|s}");
        print_line(look, i ? "" : "warnings", text, out);
        free(text);
    }
}

void show_status(const struct look *look, const json_t *status, FILE *out)
{
    static const struct row facts[] = {
            {"run", "[{run_name|s}]"},
            {"model",
             "[{parameters|c} parameters, {trained|c} of them trained, the "
             "others in {base_format|s}; computes in {dtype|s}, "
             "{optimizer|s}]"},
            {"model", "{parameters|c} parameters, {dtype|s}, {optimizer|s}"},
            {"adapters", "[{adapters.use_dora|?}DoRA, r {adapters.r|w}, on "
                         "{adapters.target_modules|s}]"},
            {"adapters",
             "[LoRA, r {adapters.r|w}, on {adapters.target_modules|s}]"},
            {"world", "{world|w} rank{world|p}, ZeRO stage {stage|w}, "
                      "{device|s}"},
            {"gpu", "[{gpu.name|s}, rank {gpu.rank|w}: {gpu.held|b} held, "
                    "{gpu.planned|b} planned, of {gpu.total|b}]"},
            {"batch", "{global_batch_size|w} samples: "
                      "{per_device_train_batch_size|w} per rank, "
                      "{gradient_accumulation_steps|w} micro-batch"
                      "{gradient_accumulation_steps|P}"},
            {"checkpoint",
             "[step {last_checkpoint_step|w}, "
             "{last_checkpoint_time|a} ago: {last_checkpoint|s}]"},
            {"checkpoint", "none yet"},
            {"output", "{output_dir|s}"},
            {"host", "{host|s}, process {pid|w}, since {started|t}"}};
    static const struct row notes[] = {
            {"hang", "[rank {hang.rank|w} on {hang.host|s} at step "
                     "{hang.step|w}: waited for in {hang.operation|s} for "
                     "{hang.seconds|d}]"},
            {"stalled", "[rank {stalled.rank|w} on {stalled.host|s} at step "
                        "{stalled.step|w}: waited for in {stalled.operation|s} "
                        "since {stalled.since|t}]"},
            {"waiting", "[{pending|s}]"},
            {"deadline", "[{deadline|t}]"}};
    json_t *shown = status_for_show(look, status);
    print_head(look, shown, out);
    fputc('\n', out);
    print_numbers(look, shown, out);
    fputc('\n', out);
    print_rows(look, shown, facts, sizeof facts / sizeof facts[0], out);
    print_phases(look, shown, out);
    print_rows(look, shown, notes, sizeof notes / sizeof notes[0], out);
    print_warnings(look, shown, out);
    json_decref(shown);
}

void show_status_line(const struct look *look, const json_t *status, FILE *out)
{
    json_t *shown = status_for_show(look, status);
    fill_print(
            look, shown,
            "{now|t} {words|s} step {step|w}/{max_steps|w} ({percent|w}%) loss "
            "{loss|n} {tokens_per_second|c} tok/s eta {eta_seconds|d}\n",
            out);
    json_decref(shown);
}
