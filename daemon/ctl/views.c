/* views.c - the commands that look, as rows; config. */
#include "daemon/ctl/show.h"
#include "daemon/ctl/view.h"

#include <string.h>

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

/* A word that was typed and means no key; NULL: each means some. */
static const char *unknown_of(const struct cli_args *args, json_t *values)
{
    for (int i = 0; i < args->line.operand_count; i++) {
        bool is_known = false;
        const char *key;
        json_t *entry;
        json_object_foreach(values, key, entry) is_known |=
                is_meant(args->line.operands[i], key);
        if (!is_known)
            return args->line.operands[i];
    }
    return NULL;
}

/* [{"key", "value", "origin"}] of the keys that were typed; the others leave
 * the answer. */
static json_t *config_select(const struct cli_args *args, json_t *answer)
{
    json_t *values = json_object_get(answer, "values"), *entry;
    json_t *rows = json_array(), *names = json_array();
    const char *key, *unknown = unknown_of(args, values);
    void *next;
    json_object_foreach_safe(values, next, key, entry)
    {
        json_array_append_new(names, json_string(key));
        if (is_wanted(args, key))
            json_array_append_new(
                    rows, json_pack(
                                  "{s:s, s:O?, s:O?}", "key", key, "value",
                                  json_object_get(entry, "value"), "origin",
                                  json_object_get(entry, "origin")));
        else
            json_object_del(values, key);
    }
    if (unknown) {
        json_decref(rows);
        rows = view_unknown("key", names, unknown, '.');
    }
    json_decref(names);
    return rows;
}

static void config_show(const struct look *look, const json_t *rows, FILE *out)
{
    static const struct grid_column columns[] = {
            {"KEY", "{key|s}", 99},
            {"VALUE", "{value|j}", 90, .least = 24},
            {"ORIGIN", "{origin|s}", 50, .least = 16}};
    grid_show(look, columns, 3, rows, out);
}

/* --- all of them --- */

static enum zd_status samples_ask(
        const struct cli_args *args, const struct target *target,
        char what[WHAT_MAX])
{
    int64_t max = args->tail < 0 ? 20 : args->tail > 100 ? 100 : args->tail;
    snprintf(what, WHAT_MAX, "/v1/samples?max=%lld", (long long)max);
    return ZD_OK;
}

enum zd_status command_look(struct cli_args *args, int *argc, char ***argv)
{
    static const struct view views[] = {
            {"status", "/v1/status", .show = show_status,
             .line = show_status_line},
            {"ranks", "/v1/ranks", .rows = "ranks", .show = show_ranks},
            {"memory", "/v1/memory", .rows = "ranks", .show = show_memory},
            {"samples", .ask = samples_ask, .rows = "samples",
             .show = show_samples},
            {"config", "/v1/config", .select = config_select,
             .show = config_show},
            {"metrics", .ask = metrics_ask, .select = metrics_select,
             .show = metrics_show},
            {"plot", .ask = metrics_ask, .select = plot_select,
             .show = plot_show}};
    size_t i = 0;
    while (strcmp(views[i].command, args->line.command) != 0)
        i++;
    return view_run(args, &views[i]);
}
