/* show.c - the tables of ls, ranks and memory: rows of columns; events and
 * samples as lines. */
#include "daemon/ctl/show.h"
#include "base/must.h"
#include "daemon/cli/fill.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define COUNT(table) (int)(sizeof table / sizeof table[0])

enum { LOST_SECONDS = 60 };

static void set_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_number_or_null(value));
}

/* --- jobs --- */

void show_jobs(const struct look *look, const json_t *jobs)
{
    static const struct grid_column columns[] = {
            {"NAME", "{name|s}", 99},
            {"STATE", "{state|s}", 90, .style = status_style},
            {"STEP", "{step|w}[/{max_steps|w}]", 80, true},
            {"%", "{percent|w}", 85, true},
            {"LOSS", "{loss|n}", 70, true},
            {"TOK/S", "{tokens_per_second|c}", 50, true},
            {"ETA", "{eta_seconds|d}", 75, true},
            {"RANKS", "{world|c}", 40, true},
            {"UPTIME", "{elapsed_seconds|d}", 30, true},
            {"PID", "{pid|w}", 20, true},
            {"OUTPUT", "{output_dir|s}", 10}};
    json_auto_t *rows = json_array();
    JSON_EACH(job, jobs) {
        json_t *row = status_for_show(look, job);
        if (!json_is_string(json_object_get(row, "state")))
            json_object_set_new(row, "state", json_string("no answer"));
        json_array_append_new(rows, row);
    }
    grid_show(look, columns, COUNT(columns), rows);
}

/* --- ranks --- */

#define TAKEN "memory.device.taken+memory.host.taken+memory.pinned.taken"
#define PLANNED                                                                \
    "memory.device.planned+memory.host.planned+memory.pinned.planned"

static enum look_style lag_style(const struct look *look, const json_t *rank)
{
    return fill_number(rank, "lag") > 0 ? LOOK_WARN : LOOK_PLAIN;
}

static enum look_style seen_style(const struct look *look, const json_t *rank)
{
    double seen = look->now - fill_number(rank, "heartbeat");
    return seen > LOST_SECONDS ? LOOK_BAD : LOOK_PLAIN;
}

/* Where all ranks are: {"least", "most"} steps and the "slowest" rank. */
static json_t *summary_of(const json_t *ranks)
{
    json_t *slowest = NULL;
    double least = INFINITY, most = 0, longest = 0;
    JSON_EACH(rank, ranks) {
        double step = fill_number(rank, "step"),
               seconds = fill_number(rank, "step_seconds");
        least = fmin(least, step);
        most = fmax(most, step);
        if (seconds > longest) {
            longest = seconds;
            slowest = json_object_get(rank, "rank");
        }
    }
    return json_pack(
            "{s:o, s:o, s:O?}", "least", json_number_or_null(least), "most",
            json_number_or_null(most), "slowest", slowest);
}

/* Axes beside shard. */
static bool has_mesh(const json_t *ranks)
{
    JSON_EACH(rank, ranks)
        if (fill_number(rank, "mesh.replicate+mesh.cp+mesh.tp") > 0)
            return true;
    return false;
}

void show_first_ranks(const struct look *look, const json_t *answer, int lines)
{
    static const struct grid_column columns[] = {
            {"RANK", "{rank|w}", 99, true},
            {"MESH",
             "[r{mesh.replicate|w} s{mesh.shard|w} cp{mesh.cp|w} "
             "tp{mesh.tp|w}]",
             66, .is_optional = true},
            {"HOST", "{host|s}", 60},
            {"DEVICE", "{device|s}", 40},
            {"STEP", "{step|w}", 95, true},
            {"LAG", "{lag|w}", 92, true, .style = lag_style},
            {"STEP TIME", "{step_seconds|d}", 70, true},
            {"MEMORY", "{" TAKEN "|b}", 90, true},
            {"PLANNED", "{" PLANNED "|b}", 65, true},
            {"RESIDENT", "{resident|b}", 80, true},
            {"PEAK", "{resident_peak|b}", 50, true},
            {"SENT",
             "{reduce_scatter_bytes+all_gather_bytes+all_to_all_bytes+"
             "all_reduce_bytes|b}",
             45, true},
            {"OFFLOADED",
             "{down_bytes+up_bytes+disk_read_bytes+disk_written_bytes|b}", 35,
             true},
            {"SEEN", "{heartbeat|a}", 85, true, .style = seen_style},
            {"THREADS", "{threads|c}", 30, true},
            {"CPUS", "{cpus|s}", 20},
            {"PID", "{pid|w}", 25, true},
            {"GPU", "{gpu.name|s}", 55, .is_optional = true},
            {"GPU HELD", "{gpu.held|b}", 89, true, .is_optional = true},
            {"GPU PLAN", "{gpu.planned|b}", 88, true, .is_optional = true},
            {"GPU USED", "{gpu.used|b}", 41, true, .is_optional = true}};
    json_t *ranks = json_object_get(answer, "ranks");
    json_auto_t *rows = json_array(), *summary = summary_of(ranks);
    size_t count = json_array_size(ranks);
    size_t room = count + 1 > (size_t)lines ? (size_t)lines - 2 : count;
    bool is_meshed = has_mesh(ranks);
    JSON_EACH_AT(i, rank, ranks) {
        json_auto_t *row =
                json_is_object(rank) ? json_copy(rank) : json_object();
        set_number(
                row, "lag",
                fill_number(summary, "most") - fill_number(rank, "step"));
        if (!is_meshed)
            json_object_del(row, "mesh");
        if (i < room)
            json_array_append(rows, row);
    }
    grid_show(look, columns, COUNT(columns), rows);
    set_number(summary, "more", (double)(count - room));
    if (room < count)
        show_line(
                look, LOOK_DIM,
                "{more|w} more; steps {least|w} to {most|w}, slowest rank "
                "{slowest|w}",
                summary);
}

void show_ranks(const struct look *look, const json_t *answer)
{
    show_first_ranks(look, answer, INT_MAX);
}

/* --- memory --- */

/* Takes the row; `of`: what the percentage is of, where it is known. */
static void add_row(json_t *rows, const json_t *rank, json_t *row, double of)
{
    double percent = 100 * fill_number(row, "taken") / of;
    set_number(row, "percent", of > 0 ? percent : NAN);
    json_object_set(row, "rank", json_object_get(rank, "rank"));
    json_array_append_new(rows, row);
}

/* Of one rank: each kind of memory that is used, its GPU (in which the arenas
 * of the device lie), the whole process with its peak in place of a limit. */
static void add_rows(json_t *rows, const json_t *rank)
{
    json_t *memories = json_object_get(rank, "memory");
    json_t *gpu = json_object_get(rank, "gpu");
    JSON_EACH(memory, memories) {
        double planned = fill_number(memory, "planned"),
               limit = fill_number(memory, "limit");
        if (planned > 0 || fill_number(memory, "taken") > 0)
            add_row(rows, rank, json_copy(memory), limit > 0 ? limit : planned);
    }
    if (json_is_object(gpu))
        add_row(rows, rank,
                json_pack(
                        "{s:s, s:O?, s:O?, s:O?}", "where", "gpu", "planned",
                        json_object_get(gpu, "planned"), "taken",
                        json_object_get(gpu, "held"), "limit",
                        json_object_get(gpu, "total")),
                fill_number(gpu, "total"));
    add_row(rows, rank,
            json_pack(
                    "{s:s, s:O?, s:O?}", "where", "process", "taken",
                    json_object_get(rank, "resident"), "limit",
                    json_object_get(rank, "resident_peak")),
            NAN);
}

void show_memory(const struct look *look, const json_t *answer)
{
    static const struct grid_column columns[] = {
            {"RANK", "{rank|w}", 99, true},
            {"WHERE", "{where|s}", 98},
            {"PLANNED", "{planned|z}", 90, true},
            {"TAKEN", "{taken|z}", 95, true},
            {"LIMIT/PEAK", "{limit|z}", 80, true},
            {"%", "{percent|w}", 70, true},
            {"PARAMS", "{kinds.params|z}", 50, true},
            {"GRADS", "{kinds.grads|z}", 45, true},
            {"OPTIMIZER", "{kinds.optimizer|z}", 48, true},
            {"ACTIVATIONS", "{kinds.activations|z}", 47, true},
            {"BUFFERS", "{kinds.buffers|z}", 40, true}};
    const json_t *ranks = json_object_get(answer, "ranks");
    json_auto_t *rows = json_array();
    JSON_EACH(rank, ranks)
        add_rows(rows, rank);
    grid_show(look, columns, COUNT(columns), rows);
}

/* --- events --- */

/* Members of a command beside those that every event has. */
static void print_command(const struct look *look, const json_t *event)
{
    static const char *const known[] = {"id",  "time",    "event", "step",
                                        "uid", "command", "error", "pid"};
    json_auto_t *rest = json_copy((json_t *)event);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        json_object_del(rest, known[i]);
    ZD_FREED char *text =
            json_dumps(rest, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fill_print(look, event, "[ {command|s}]");
    if (text && strlen(text) > strlen("{}")) {
        fputc(' ', look->out);
        text_print(look, text, false);
    }
    fill_print(
            look, event,
            "[ (uid {uid|w}, process {pid|w})][ failed: {error.message|s}]"
            "[ failed: {error|s}]");
}

#define REST                                                                   \
    "[ loss {loss|n}][ eval_loss {eval_loss|n}][ grad_norm {grad_norm|n}]"     \
    "[ learning_rate {learning_rate|n}][ {state|s}][ {message|s}][ {path|s}]"  \
    "[ from {from|s}]"

/* What an event says of itself; the last is of all others. */
static const struct {
    const char *kind;
    enum look_style style;
    const char *text;
} kinds[] = {
        {"checkpoint", LOOK_ACCENT, "[ {path|s}][ seconds {seconds|n}]"},
        {"sample", LOOK_ACCENT, "[ {prompt|s}] ->[ {text|s}]"},
        {"straggler", LOOK_ACCENT,
         " rank {rank|w} on {host|s}: {ratio|2} times the median of the ranks"},
        {"hang", LOOK_BAD,
         " rank {rank|w} on {host|s}: waited for in {operation|s} for "
         "{seconds|d}"},
        {"warning", LOOK_WARN, REST},
        {"step", LOOK_DIM, REST},
        {NULL, LOOK_ACCENT, REST}};

void show_event(const struct look *look, const json_t *event)
{
    const char *kind = json_text_of(event, "event", "?");
    ZD_FREED char *name = fill(look, event, "{event|s}");
    int i = 0;
    while (kinds[i].kind && strcmp(kinds[i].kind, kind) != 0)
        i++;
    fill_print(look, event, "{time|t}  step ");
    fprintf(look->out, "%-7.0f %s%-10s%s", fmax(fill_number(event, "step"), 0),
            look_style(look, kinds[i].style), name,
            look_style(look, LOOK_PLAIN));
    if (strcmp(kind, "command") == 0)
        print_command(look, event);
    else
        fill_print(look, event, kinds[i].text);
    fputc('\n', look->out);
}

/* --- samples --- */

void show_samples(const struct look *look, const json_t *answer)
{
    json_t *samples = json_object_get(answer, "samples"), *sample;
    size_t count = json_array_size(samples);
    for (size_t i = count; i-- > 0;) { /* the newest is what one sees last */
        sample = json_array_get(samples, i);
        fputs(i + 1 < count ? "\n" : "", look->out);
        fputs(look_style(look, LOOK_DIM), look->out);
        fill_print(look, sample, "step {step|w}, {time|t}");
        fprintf(look->out, "%s\n", look_style(look, LOOK_PLAIN));
        show_sample(look, sample);
    }
    if (!count)
        fputs("no samples yet\n", look->out);
}

/* A chat's answer is below its prompt; other text goes on from it. */
void show_sample(const struct look *look, const json_t *sample)
{
    bool is_chat = json_is_true(json_object_get(sample, "chat"));
    fprintf(look->out, "%s%s", look_style(look, LOOK_BOLD),
            is_chat ? "> " : "");
    text_print(look, json_text_of(sample, "prompt", ""), true);
    fprintf(look->out, "%s%s", look_style(look, LOOK_PLAIN),
            is_chat ? "\n" : "");
    show_text(look, sample);
}

void show_text(const struct look *look, const json_t *sample)
{
    text_print(look, json_text_of(sample, "text", ""), true);
    fputc('\n', look->out);
}
