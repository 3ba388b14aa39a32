#include "tests/support/plan_check.h"

#include "base/memory/arena.h"
#include "base/must.h"
#include "tests/support/job_threads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

json_t *plan_check_open(const char *dir)
{
    char path[PATH_MAX];
    json_t *plan = NULL;
    snprintf(path, sizeof path, "%s/out/plan.json", dir);
    return json_parse_file(path, 1 << 24, &plan) == ZD_OK ? plan : NULL;
}

static json_int_t sent_in(const json_t *rank, const char *operation)
{
    json_int_t bytes = 0;
    JSON_EACH(row, json_object_get(rank, "wire")) {
        const json_t *name = json_object_get(row, "operation");
        if (strcmp(json_string_value(name), operation) == 0)
            bytes += json_integer_at(row, "bytes_per_step");
    }
    return bytes;
}

/* Does every row have `want` under `path`? */
static bool rows_have(const char *dir, const char *path, double want, int rows)
{
    ZD_FREED double *values = NULL;
    int count = job_threads_column(dir, path, &values);
    bool same = count == rows;
    for (int i = 0; i < count; i++)
        same = same && values[i] == want;
    return same;
}

/* Does every row have what each group was to send? */
static bool groups_have(const json_t *plan, const char *dir, int rows)
{
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    bool same = true;
    JSON_EACH(row, json_object_get(rank, "wire")) {
        char path[64];
        snprintf(
                path, sizeof path, "wire.%s.%s", json_string_at(row, "group"),
                json_string_at(row, "operation"));
        double want = json_number_value(json_object_get(row, "bytes_per_step"));
        same = same && rows_have(dir, path, want, rows);
    }
    return same;
}

/* .. and all together, to which they add up? */
static bool all_have(const json_t *plan, const char *dir, int rows)
{
    const json_t *rank = json_array_get(json_object_get(plan, "ranks"), 0);
    bool same = true;
    JSON_MEMBERS(
            operation, bytes, json_object_get(plan, "wire_bytes_per_step")) {
        char path[64];
        snprintf(path, sizeof path, "wire_bytes.%s", operation);
        same = same && sent_in(rank, operation) == json_integer_value(bytes) &&
               rows_have(dir, path, json_number_value(bytes), rows);
    }
    return same;
}

/* Does no row have other bytes than planned over the link? Of layer inputs
 * less, where samples are short. With weights on the device the last copies of
 * a step are in the next. */
static bool link_has(const json_t *plan, const char *dir)
{
    const json_t *moves = json_object_get(plan, "offload_bytes_per_step");
    const json_t *inputs = json_object_get(moves, "activations");
    const char *params = json_string_at(
            json_object_get(json_object_get(plan, "layout"), "offload"),
            "params");
    bool moves_params = params && strcmp(params, "none") != 0;
    const struct {
        const char *key;
        const json_t *want;
    } columns[] = {
            {"offload.down_bytes", json_object_get(moves, "down")},
            {"offload.up_bytes",
             moves_params ? json_object_get(moves, "up") : NULL},
            {"offload.activations.down_bytes", json_object_get(inputs, "down")},
            {"offload.activations.up_bytes", json_object_get(inputs, "up")}};
    bool same = true;
    for (int c = 0; c < 4; c++) {
        double *values = NULL, want = json_number_value(columns[c].want);
        int count = columns[c].want
                            ? job_threads_column(dir, columns[c].key, &values)
                            : 0;
        for (int i = 0; i < count; i++)
            same = same && (c < 2 ? values[i] == want : values[i] <= want);
        free(values);
    }
    return same;
}

bool plan_check_sent(const json_t *plan, const char *dir, int rows)
{
    return link_has(plan, dir) && groups_have(plan, dir, rows) &&
           all_have(plan, dir, rows);
}

bool plan_check_taken(const json_t *plan)
{
    const json_t *ranks = json_object_get(plan, "ranks");
    bool same = json_array_size(ranks) > 0;
    JSON_EACH(rank, ranks) {
        JSON_EACH(arena, json_object_get(rank, "arenas")) {
            const json_t *parts = json_object_get(arena, "spans");
            bool on_device =
                    strcmp(json_string_at(arena, "name"), "device") == 0;
            json_int_t align = on_device ? ARENA_DEVICE_ALIGN : ARENA_ALIGN;
            json_int_t spans = 0,
                       planned = json_integer_at(arena, "planned_bytes");
            JSON_EACH(span, parts)
                spans += json_integer_at(span, "bytes");
            same = same && planned == json_integer_at(arena, "taken_bytes") &&
                   spans <= planned &&
                   planned <=
                           spans + align * (json_int_t)json_array_size(parts);
        }
    }
    return same;
}
