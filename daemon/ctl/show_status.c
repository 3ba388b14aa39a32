/* show_status.c - the page of `zerodctl status`: rows of a name and a template.
 */
#include "base/must.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/show.h"

#include <math.h>
#include <string.h>

enum { NAME_COLUMNS = 15 };

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
    ZD_FREED char *text = NULL;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(state, words[i].name) == 0)
            text = fill(&plain, status, words[i].value);
    json_object_set_new(status, "words", json_string(text ? text : state));
}

/* The share of each phase of the time: ["forward 52%", ..]. */
static json_t *phases_of(const json_t *status)
{
    json_t *phases = json_object_get(status, "phase_seconds");
    json_t *list = json_array();
    double total = 0;
    JSON_MEMBERS(name, value, phases)
        total += json_number_value(value);
    JSON_MEMBERS(name, value, phases) {
        double percent = 100 * json_number_value(value) / total;
        if (percent >= 0.5)
            json_array_append_new(
                    list, json_sprintf("%.40s %.0f%%", name, percent));
    }
    return list;
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
    double sharers =
            fill_number(copy, "mesh.cp") * fill_number(copy, "mesh.tp");
    json_object_update_new(
            copy,
            json_pack(
                    "{s:f, s:f, s:o, s:o, s:o, s:o}", "now", look->now, "share",
                    share, "percent",
                    json_number_or_null(isfinite(step) ? 100 * share : NAN),
                    "trained", json_number_or_null(has_base ? trained : NAN),
                    "phases", phases_of(status), "sharers",
                    json_number_or_null(sharers)));
    if (best == fill_number(copy, "eval_loss"))
        json_object_del(copy, "best_eval_loss");
    if (fill_number(copy, "mesh.shard") == fill_number(copy, "world"))
        json_object_del(copy, "mesh");
    if (status_is_one_of(copy, STATES_ENDED))
        json_object_del(copy, "eta_seconds");
    return copy;
}

enum look_style status_style(const struct look *look, const json_t *status)
{
    return look_of_state(json_text_of(status, "state", "?"));
}

/* --- lines --- */

void show_line(
        const struct look *look, enum look_style style, const char *template,
        const json_t *object)
{
    ZD_FREED char *text = fill(look, object, template);
    fputs(look_style(look, style), look->out);
    text_fit(look, text, look->columns);
    fprintf(look->out, "%s\n", look_style(look, LOOK_PLAIN));
}

/* A name and a value of any length, which goes on in the lines below. */
static void print_line(
        const struct look *look, const char *name, const char *text)
{
    int columns = look->columns > 0 ? look->columns - 2 - NAME_COLUMNS : 0;
    do {
        size_t bytes = text_break(text, columns);
        fprintf(look->out, "  %s%-*s%s%.*s\n", look_style(look, LOOK_DIM),
                NAME_COLUMNS, name, look_style(look, LOOK_PLAIN), (int)bytes,
                text);
        text += bytes;
        text += strspn(text, " ");
        name = "";
    } while (*text);
}

static void print_rows(
        const struct look *look, const json_t *status, const struct row *rows,
        size_t count)
{
    const char *shown = "";
    for (size_t i = 0; i < count; i++) {
        ZD_FREED char *text = strcmp(rows[i].name, shown) == 0
                                      ? NULL
                                      : fill(look, status, rows[i].value);
        if (text && text[0]) {
            print_line(look, rows[i].name, text);
            shown = rows[i].name;
        }
    }
}

static void print_numbers(const struct look *look, const json_t *status)
{
    static const struct row rows[] = {
            {"loss", "{loss|n}"},
            {"eval loss", "{eval_loss|n}[ best {best_eval_loss|n}]"},
            {"learning rate", "{learning_rate|n}"},
            {"grad norm", "{grad_norm|n}"},
            {"epoch", "{epoch|n}"},
            {"skipped steps", "{skipped_steps|w}"},
            {"loss scale", "[{loss_scale|c}]"},
            {"speed", "{tokens_per_second|c}[{tokens_per_second|.} tok/s]"},
            {"step time", "{step_seconds|d}"},
            {"compute", "{model_flops_per_second|f}[, mfu {mfu|2}]"},
            {"tokens", "{tokens|c}"},
            {"samples", "{samples|c}"},
            {"elapsed", "{elapsed_seconds|d}"}};
    print_rows(look, status, rows, sizeof rows / sizeof rows[0]);
}

static void print_warnings(const struct look *look, const json_t *status)
{
    const json_t *list = json_object_get(status, "warnings");
    JSON_EACH_AT(i, item, list) {
        ZD_FREED char *text =
                fill(look, item, "{time|t} step {step|w}: {message|s}");
        print_line(look, i ? "" : "warnings", text);
    }
}

/* --- the page --- */

void show_bar(const struct look *look, const json_t *shown)
{
    int columns = look->columns == 0    ? 80
                  : look->columns > 100 ? 100
                                        : look->columns;
    look_bar(look, fill_number(shown, "share"), columns);
    fputc('\n', look->out);
}

/* Name, state and progress, in the color of the state. */
static void print_head(const struct look *look, const json_t *shown)
{
    ZD_FREED char *text =
            fill(look, shown,
                 "{job|s}  {words|s}  step {step|w} of {max_steps|w}, "
                 "{percent|w}%[  eta {eta_seconds|d}]");
    fputs(look_style(look, status_style(look, shown)), look->out);
    for (const char *at = text; *at; at += strspn(at, " ")) {
        size_t bytes = text_break(at, look->columns);
        fprintf(look->out, "%.*s\n", (int)bytes, at);
        at += bytes;
    }
    fputs(look_style(look, LOOK_PLAIN), look->out);
    show_bar(look, shown);
}

void show_status(const struct look *look, const json_t *status)
{
    static const struct row facts[] = {
            {"run", "[{run_name|s}]"},
            {"model",
             "[{parameters|c} parameters, {trained|c} of them trained, the "
             "others in {base_format|s}; computes in {dtype|s}, "
             "{optimizer|s}]"},
            {"model", "{parameters|c} parameters, {dtype|s}, {optimizer|s}"},
            {"fp8", "[matmuls of the layers, {fp8|s}]"},
            {"adapters", "[{adapters.use_dora|?}DoRA, r {adapters.r|w}, on "
                         "{adapters.target_modules|s}]"},
            {"adapters",
             "[LoRA, r {adapters.r|w}, on {adapters.target_modules|s}]"},
            {"world", "{world|w} rank{world|p}, ZeRO stage {stage|w}, "
                      "{device|s}"},
            {"mesh", "[replicate {mesh.replicate|w} x shard {mesh.shard|w} x "
                     "cp {mesh.cp|w} x tp {mesh.tp|w}]"},
            {"gpu", "[{gpu.name|s}, rank {gpu.rank|w}: {gpu.held|b} held, "
                    "{gpu.planned|b} planned, of {gpu.total|b}]"},
            {"batch", "[{global_batch_size|w} samples: "
                      "{per_device_train_batch_size|w} per group of "
                      "{sharers|>} ranks, "
                      "{gradient_accumulation_steps|w} micro-batch"
                      "{gradient_accumulation_steps|P}]"},
            {"batch", "{global_batch_size|w} samples: "
                      "{per_device_train_batch_size|w} per rank, "
                      "{gradient_accumulation_steps|w} micro-batch"
                      "{gradient_accumulation_steps|P}"},
            {"checkpoint",
             "[step {last_checkpoint_step|w}, "
             "{last_checkpoint_time|a} ago: {last_checkpoint|s}]"},
            {"checkpoint", "none yet"},
            {"output", "{output_dir|s}"},
            {"host", "{host|s}, process {pid|w}, since {started|t}"},
            {"time", "[{phases|s}]"},
            {"hang", "[rank {hang.rank|w} on {hang.host|s} at step "
                     "{hang.step|w}: waited for in {hang.operation|s} for "
                     "{hang.seconds|d}]"},
            {"stalled", "[rank {stalled.rank|w} on {stalled.host|s} at step "
                        "{stalled.step|w}: waited for in {stalled.operation|s} "
                        "since {stalled.since|t}]"},
            {"waiting", "[{pending|s}]"},
            {"deadline", "[{deadline|t}]"}};
    json_auto_t *shown = status_for_show(look, status);
    print_head(look, shown);
    fputc('\n', look->out);
    print_numbers(look, shown);
    fputc('\n', look->out);
    print_rows(look, shown, facts, sizeof facts / sizeof facts[0]);
    print_warnings(look, shown);
}

void show_status_line(const struct look *look, const json_t *status)
{
    json_auto_t *shown = status_for_show(look, status);
    fill_print(
            look, shown,
            "{now|t} {words|s} step {step|w}/{max_steps|w} ({percent|w}%) loss "
            "{loss|n} {tokens_per_second|c} tok/s eta {eta_seconds|d}\n");
}
