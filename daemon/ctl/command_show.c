/* command_show.c - the commands that only look: ls, status, ranks, memory,
 * samples, logs, events, config. */
#include "base/file/json.h"
#include "base/suggest.h"
#include "daemon/cli/parse.h"
#include "daemon/ctl/client.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/dir.h"
#include "daemon/ctl/grid.h"
#include "daemon/ctl/jobs.h"
#include "daemon/ctl/show.h"
#include "daemon/ctl/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum zd_status command_ls(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct jobs jobs;
    json_t *list = json_array();
    jobs_find(args->all, &jobs);
    for (int i = 0; i < jobs.count; i++) {
        json_t *item = json_pack(
                "{s:s, s:s}", "name", jobs.items[i].name, "socket",
                jobs.items[i].socket);
        json_object_update_missing(item, jobs.items[i].status);
        json_array_append_new(list, item);
    }
    if (ctl_output(args) == OUTPUT_JSON)
        ctl_print_json(list);
    else if (ctl_output(args) == OUTPUT_CSV)
        ctl_print_csv(list);
    else
        show_jobs(&look, list, stdout);
    json_decref(list);
    jobs_fini(&jobs);
    return ZD_OK;
}

enum zd_status command_look(struct cli_args *args, int *argc, char ***argv)
{
    char samples[64];
    const struct watch watches[] = {
            {"status", "/v1/status", NULL, show_status, show_status_line},
            {"ranks", "/v1/ranks", "ranks", show_ranks},
            {"memory", "/v1/memory", "ranks", show_memory},
            {"samples", samples, "samples", show_samples}};
    int64_t max = args->tail < 0 ? 20 : args->tail > 100 ? 100 : args->tail;
    size_t i = 0;
    snprintf(samples, sizeof samples, "/v1/samples?max=%lld", (long long)max);
    while (strcmp(watches[i].command, args->line.command) != 0)
        i++;
    return watch_run(args, &watches[i]);
}

/* --- streams --- */

static enum zd_status since_of(const struct cli_args *args, double *since_out)
{
    double ago;
    struct look look = look_of_stdout();
    *since_out = 0;
    if (!args->since)
        return ZD_OK;
    char *end;
    double at = strtod(args->since, &end);
    if (end != args->since && !*end && at > 1e9) {
        *since_out = at; /* seconds since 1970 */
        return ZD_OK;
    }
    *since_out = dir_line_time(args->since);
    if (*since_out > 0)
        return ZD_OK;
    if (!cli_parse_duration(args->since, &ago))
        return ZD_FAIL(
                ZD_ERR_USAGE, "E0101",
                "--since takes a time like 5m, 1h30m or 2026-11-21T20:33:53Z, "
                "not `%s`",
                args->since);
    *since_out = look.now - ago;
    return ZD_OK;
}

struct printing {
    struct look look;
    bool as_json, with_steps;
    json_t *kept; /* events of --tail, oldest first; NULL: printed at once */
    size_t tail;
};

static bool print_log_line(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    text_print(&printing->look, line, true, stdout);
    fputc('\n', stdout);
    return !ferror(stdout);
}

static void print_event(const struct printing *printing, const json_t *event)
{
    if (printing->as_json) {
        json_dumpf(
                event, stdout,
                JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENSURE_ASCII);
        fputc('\n', stdout);
    } else {
        show_event(&printing->look, event, stdout);
    }
}

static bool take_event(void *ctx, const char *line)
{
    struct printing *printing = ctx;
    json_t *event = json_of_line(line, strlen(line));
    const char *kind = json_text_of(event, "event", "");
    if (json_is_object(event) &&
        (printing->with_steps || strcmp(kind, "step") != 0)) {
        if (printing->kept) {
            json_array_append(printing->kept, event);
            if (json_array_size(printing->kept) > printing->tail)
                json_array_remove(printing->kept, 0);
        } else {
            print_event(printing, event);
        }
    }
    json_decref(event);
    return !ferror(stdout);
}

static enum zd_status refuse_csv(const struct cli_args *args, const char *what)
{
    if (ctl_output(args) != OUTPUT_CSV)
        return ZD_OK;
    return ZD_FAIL(ZD_ERR_USAGE, "E0101", "%s are no table: no -o csv", what);
}

enum zd_status command_logs(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {.look = look_of_stdout()};
    struct target target;
    struct target_stream stream = {
            .rank = (int)args->rank,
            .tail = args->tail,
            .follow = args->follow,
            .line = print_log_line,
            .ctx = &printing};
    ZD_TRY(refuse_csv(args, "logs"));
    ZD_TRY(since_of(args, &stream.since));
    ZD_TRY(ctl_target(args, &printing.look, &target));
    enum zd_status status = target_stream(&target, &stream);
    target_fini(&target);
    return status;
}

enum zd_status command_events(struct cli_args *args, int *argc, char ***argv)
{
    struct printing printing = {
            .look = look_of_stdout(),
            .as_json = ctl_output(args) == OUTPUT_JSON,
            .with_steps = args->with_steps};
    struct target target;
    struct target_stream stream = {
            .is_events = true,
            .tail = -1,
            .line = take_event,
            .ctx = &printing};
    size_t i;
    json_t *event;
    ZD_TRY(refuse_csv(args, "events"));
    ZD_TRY(since_of(args, &stream.since));
    ZD_TRY(ctl_target(args, &printing.look, &target));
    if (args->tail >= 0 && !args->follow) {
        printing.kept = json_array();
        printing.tail = (size_t)args->tail;
    }
    stream.follow = args->follow;
    enum zd_status status = target_stream(&target, &stream);
    json_array_foreach(printing.kept, i, event) print_event(&printing, event);
    json_decref(printing.kept);
    target_fini(&target);
    return status;
}

/* --- config --- */

static bool is_meant(const char *word, const char *key)
{
    size_t length = strlen(word);
    const char *dot = strchr(key, '.');
    return strcmp(key, word) == 0 || (dot && strcmp(dot + 1, word) == 0) ||
           (strncmp(key, word, length) == 0 && key[length] == '.');
}

static bool is_wanted(const struct cli_args *args, const char *key)
{
    for (int i = 0; i < args->line.operand_count; i++)
        if (is_meant(args->line.operands[i], key))
            return true;
    return args->line.operand_count == 0;
}

/* The nearest of the keys, with its section or without. */
static enum zd_status fail_key(const char *word, json_t *values)
{
    struct suggestion nearest = {0};
    const char *key;
    json_t *entry;
    json_object_foreach(values, key, entry)
    {
        const char *dot = strchr(key, '.');
        int whole = edit_distance(word, key);
        int end = dot ? edit_distance(word, dot + 1) : whole;
        suggest_offer(&nearest, word, end < whole ? end : whole, key);
    }
    ZD_FAIL(ZD_ERR_USAGE, "E1095", "there is no key `%s`", word);
    if (nearest.word)
        zd_fail_help("did you mean `%s`?", nearest.word);
    else
        zd_fail_help("zerodctl config lists them");
    return ZD_ERR_USAGE;
}

static enum zd_status check_keys(const struct cli_args *args, json_t *values)
{
    for (int i = 0; i < args->line.operand_count; i++) {
        const char *key;
        json_t *entry;
        bool is_known = false;
        json_object_foreach(values, key, entry) is_known =
                is_known || is_meant(args->line.operands[i], key);
        if (!is_known)
            return fail_key(args->line.operands[i], values);
    }
    return ZD_OK;
}

/* {"key", "value", "origin"}; values as JSON text where `as_text`. */
static json_t *config_rows(
        const struct cli_args *args, json_t *values, bool as_text)
{
    json_t *rows = json_array(), *entry;
    const char *key;
    json_object_foreach(values, key, entry)
    {
        json_t *value = json_incref(json_object_get(entry, "value"));
        if (as_text) {
            char *text =
                    json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
            json_decref(value);
            value = json_string(text ? text : "-");
            free(text);
        }
        if (is_wanted(args, key))
            json_array_append_new(
                    rows,
                    json_pack(
                            "{s:s, s:O?, s:O?}", "key", key, "value", value,
                            "origin", json_object_get(entry, "origin")));
        json_decref(value);
    }
    return rows;
}

static void show_config(
        const struct cli_args *args, const struct look *look, json_t *values)
{
    static const struct grid_column columns[] = {
            {"KEY", "{key|s}", 99},
            {"VALUE", "{value|s}", 90, .least = 24},
            {"ORIGIN", "{origin|s}", 50, .least = 16}};
    bool is_csv = ctl_output(args) == OUTPUT_CSV;
    json_t *rows = config_rows(args, values, !is_csv);
    if (is_csv)
        ctl_print_csv(rows);
    else
        grid_show(look, columns, 3, rows, stdout);
    json_decref(rows);
}

enum zd_status command_config(struct cli_args *args, int *argc, char ***argv)
{
    struct look look = look_of_stdout();
    struct target target;
    json_t *answer;
    ZD_TRY(ctl_target(args, &look, &target));
    enum zd_status status = target_get(&target, "/v1/config", &answer);
    json_t *values = json_object_get(answer, "values");
    if (status == ZD_OK)
        status = check_keys(args, values);
    if (status == ZD_OK && ctl_output(args) == OUTPUT_JSON)
        ctl_print_json(answer);
    else if (status == ZD_OK)
        show_config(args, &look, values);
    json_decref(answer);
    target_fini(&target);
    return status;
}
