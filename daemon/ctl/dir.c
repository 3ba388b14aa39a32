#include "daemon/ctl/dir.h"

#include "base/file/fs.h"
#include "base/file/json.h"
#include "daemon/ctl/client.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 1 << 30, FOLLOW_MS = 500 };

static enum zd_status fail_missing(const char *dir, const char *what)
{
    ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "the files of %s do not tell of %s", dir,
            what);
    zd_fail_help(
            "while the job runs, zerodctl on its own host asks its socket; "
            "after its end report.html in %s tells of it",
            dir);
    return ZD_ERR_NO_INPUT;
}

/* --- whole files --- */

static enum zd_status get_plan(const char *dir, json_t **json_out)
{
    char path[PATH_MAX];
    fs_join(path, sizeof path, dir, "plan.json");
    return json_parse_file(path, FILE_MAX, json_out);
}

static enum zd_status get_ranks(
        const char *dir, const json_t *file, json_t **json_out)
{
    json_t *ranks = json_object_get(file, "ranks");
    if (!json_is_array(ranks))
        return fail_missing(dir, "ranks");
    *json_out = json_pack(
            "{s:O?, s:O}", "step", json_object_get(file, "step"), "ranks",
            ranks);
    return ZD_OK;
}

/* {"device": {"planned", "taken"}} as [{"where": "device", ..}] */
static json_t *memory_list(const json_t *memory)
{
    json_t *list = json_array(), *value;
    const char *where;
    json_object_foreach((json_t *)memory, where, value)
    {
        json_t *entry = json_pack("{s:s}", "where", where);
        json_object_update(entry, value);
        json_array_append_new(list, entry);
    }
    return list;
}

static enum zd_status get_memory(
        const char *dir, const json_t *file, json_t **json_out)
{
    json_t *ranks = json_object_get(file, "ranks"), *rank, *plan = NULL;
    size_t i;
    if (!json_is_array(ranks))
        return fail_missing(dir, "ranks' memory");
    if (get_plan(dir, &plan) != ZD_OK)
        zd_error_clear();
    json_t *list = json_array();
    json_array_foreach(ranks, i, rank)
    {
        json_t *memory = json_object_get(rank, "memory");
        json_array_append_new(
                list,
                json_pack(
                        "{s:O?, s:O?, s:o, s:O?, s:O?}", "rank",
                        json_object_get(rank, "rank"), "gpu",
                        json_object_get(rank, "gpu"), "memory",
                        memory_list(memory), "resident",
                        json_object_get(rank, "resident"), "resident_peak",
                        json_object_get(rank, "resident_peak")));
    }
    *json_out = json_pack("{s:o, s:o?}", "ranks", list, "plan", plan);
    return ZD_OK;
}

/* --- files of lines --- */

/* Each line of a file; a torn last one only with `torn`. */
static enum zd_status each_line(
        const char *path, void (*take)(void *ctx, const char *line), void *ctx)
{
    char *text, *next;
    size_t bytes;
    ZD_TRY(fs_read_file(path, FILE_MAX, &text, &bytes));
    for (char *line = text; *line; line = next) {
        char *end = strchr(line, '\n');
        if (!end)
            break; /* being written */
        *end = '\0';
        next = end + 1;
        take(ctx, line);
    }
    free(text);
    return ZD_OK;
}

/* Series of docs/control.md and where a row of metrics.jsonl has them. */
static const struct {
    const char *name, *group, *key;
} series_table[] = {
        {"train/loss", NULL, "loss"},
        {"train/grad_norm", NULL, "grad_norm"},
        {"train/learning_rate", NULL, "learning_rate"},
        {"train/loss_scale", NULL, "loss_scale"},
        {"eval/loss", NULL, "eval_loss"},
        {"perf/tokens_per_second", NULL, "tokens_per_second"},
        {"perf/step_seconds", NULL, "step_seconds"},
        {"perf/data_wait", "phase_seconds", "data"},
        {"perf/forward", "phase_seconds", "forward"},
        {"perf/backward", "phase_seconds", "backward"},
        {"perf/reduce", "phase_seconds", "reduce"},
        {"perf/update", "phase_seconds", "update"},
        {"perf/gather", "phase_seconds", "gather"},
};
enum { SERIES = sizeof series_table / sizeof series_table[0] };

struct history {
    json_t *steps[SERIES], *values[SERIES];
    double since;
};

static void take_row(void *ctx, const char *line)
{
    struct history *history = ctx;
    json_t *row = json_of_line(line, strlen(line));
    json_t *step = json_object_get(row, "step");
    bool is_wanted = json_number_value(step) > history->since;
    for (int i = 0; is_wanted && i < SERIES; i++) {
        const json_t *from =
                series_table[i].group
                        ? json_object_get(row, series_table[i].group)
                        : row;
        json_t *value = json_object_get(from, series_table[i].key);
        if (!value)
            continue;
        json_array_append(history->steps[i], step);
        json_array_append(history->values[i], value);
    }
    json_decref(row);
}

/* The value of `name` in the query of `what`; false: not there. */
static bool param(
        const char *what, const char *name, char *out, size_t out_bytes)
{
    size_t length = strlen(name);
    const char *at = strchr(what, '?');
    for (; at; at = strchr(at, '&')) {
        at++;
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(
                    out, out_bytes, "%.*s", (int)strcspn(at + length + 1, "&"),
                    at + length + 1);
            return true;
        }
    }
    return false;
}

static bool is_named(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ',') &&
            (!at[length] || at[length] == ','))
            return true;
    return !names[0];
}

/* Every row: thinning is the plot's business. */
static enum zd_status get_history(
        const char *dir, const char *what, json_t **json_out)
{
    struct history history = {0};
    char path[PATH_MAX], names[1024] = "", since[32] = "0";
    fs_join(path, sizeof path, dir, "metrics.jsonl");
    param(what, "name", names, sizeof names);
    param(what, "since", since, sizeof since);
    history.since = strtod(since, NULL);
    for (int i = 0; i < SERIES; i++) {
        history.steps[i] = json_array();
        history.values[i] = json_array();
    }
    enum zd_status status = each_line(path, take_row, &history);
    json_t *series = json_object(), *list = json_array();
    for (int i = 0; i < SERIES; i++) {
        const char *name = series_table[i].name;
        json_array_append_new(list, json_string(name));
        json_t *both = json_pack(
                "{s:o, s:o}", "step", history.steps[i], "value",
                history.values[i]);
        if (is_named(names, name))
            json_object_set(series, name, both);
        json_decref(both);
    }
    *json_out = json_pack("{s:o, s:o}", "series", series, "names", list);
    if (status != ZD_OK) {
        json_decref(*json_out);
        *json_out = NULL;
    }
    return status;
}

static void take_sample(void *ctx, const char *line)
{
    json_t *event = json_of_line(line, strlen(line));
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (kind && strcmp(kind, "sample") == 0)
        json_array_insert(ctx, 0, event); /* newest first */
    json_decref(event);
}

static enum zd_status get_samples(
        const char *dir, const char *what, json_t **json_out)
{
    char path[PATH_MAX], max[16] = "20";
    json_t *samples = json_array();
    fs_join(path, sizeof path, dir, "events.jsonl");
    param(what, "max", max, sizeof max);
    enum zd_status status = each_line(path, take_sample, samples);
    while (json_array_size(samples) > strtoul(max, NULL, 10))
        json_array_remove(samples, json_array_size(samples) - 1);
    *json_out = json_pack("{s:o}", "samples", samples);
    if (status != ZD_OK) {
        json_decref(*json_out);
        *json_out = NULL;
    }
    return status;
}

enum zd_status dir_get(
        const char *dir, const json_t *file, const char *what,
        json_t **json_out)
{
    *json_out = NULL;
    if (strcmp(what, "/v1/status") == 0) {
        *json_out = json_incref((json_t *)file);
        return ZD_OK;
    }
    if (strcmp(what, "/v1/ranks") == 0)
        return get_ranks(dir, file, json_out);
    if (strcmp(what, "/v1/memory") == 0)
        return get_memory(dir, file, json_out);
    if (strcmp(what, "/v1/plan") == 0)
        return get_plan(dir, json_out);
    if (strncmp(what, "/v1/metrics/history", 19) == 0)
        return get_history(dir, what, json_out);
    if (strncmp(what, "/v1/samples", 11) == 0)
        return get_samples(dir, what, json_out);
    return fail_missing(dir, strrchr(what, '/') + 1);
}

/* --- following --- */

double dir_line_time(const char *line)
{
    struct tm tm = {0};
    if (line[0] == '{') {
        json_t *object = json_of_line(line, strlen(line));
        json_t *time = json_object_get(object, "time");
        double value = json_is_string(time)
                               ? dir_line_time(json_string_value(time))
                               : json_number_value(time);
        json_decref(object);
        return value;
    }
    if (!isdigit((unsigned char)line[0]) ||
        !strptime(line, "%Y-%m-%dT%H:%M:%S", &tm))
        return 0;
    return (double)timegm(&tm);
}

/* Where the last `tail` lines of the file begin. */
static long tail_offset(FILE *file, int64_t tail)
{
    char data[8192];
    fseek(file, 0, SEEK_END);
    long at = ftell(file);
    int64_t lines = -1; /* the end of the last line counts for none */
    while (at > 0 && tail >= 0) {
        long bytes = at < (long)sizeof data ? at : (long)sizeof data;
        fseek(file, at - bytes, SEEK_SET);
        if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
            break;
        for (long i = bytes - 1; i >= 0; i--)
            if (data[i] == '\n' && ++lines == tail)
                return at - bytes + i + 1;
        at -= bytes;
    }
    return 0;
}

static bool pass_line(const struct target_stream *stream, char *line)
{
    line[strcspn(line, "\n")] = '\0';
    double time = stream->since > 0 ? dir_line_time(line) : 0;
    if (time > 0 && time < stream->since)
        return true;
    return stream->line(stream->ctx, line);
}

enum zd_status dir_stream(const char *dir, const struct target_stream *stream)
{
    char path[PATH_MAX], name[64], *line = NULL;
    size_t capacity = 0;
    snprintf(name, sizeof name, "logs/rank-%05d.log", stream->rank);
    fs_join(path, sizeof path, dir, stream->is_events ? "events.jsonl" : name);
    FILE *file = fopen(path, "re");
    if (!file) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1097", "cannot read %s: %s", path,
                strerror(errno));
        return ZD_ERR_NO_INPUT;
    }
    long at = tail_offset(file, stream->tail);
    bool goes_on = fseek(file, at, SEEK_SET) == 0;
    while (goes_on && !client_interrupted()) {
        ssize_t bytes = getline(&line, &capacity, file);
        if (bytes > 0 && (line[bytes - 1] == '\n' || !stream->follow)) {
            goes_on = pass_line(stream, line);
            at = ftell(file);
        } else if (!stream->follow) {
            goes_on = false;
        } else { /* a torn line is read again when it is whole */
            fflush(stdout);
            poll(NULL, 0, FOLLOW_MS);
            clearerr(file);
            fseek(file, at, SEEK_SET);
        }
    }
    free(line);
    fclose(file);
    return ZD_OK;
}
