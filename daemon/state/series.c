#include "daemon/state/series.h"

#include "base/must.h"
#include "base/words.h"
#include "daemon/state/run_state.h"
#include "train/report/file_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_kept(const struct metric *metric)
{
    return metric->series && !(metric->flags & METRIC_LIVE);
}

static const struct metric *run_series(int i)
{
    const struct metric_table *const tables[] = {
            &step_metrics, &run_metrics, &rank_metrics};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (size_t r = 0; r < tables[t]->count; r++)
            if (is_kept(&tables[t]->rows[r]) && i-- == 0)
                return &tables[t]->rows[r];
    return NULL;
}

const char *run_series_name(int i)
{
    const struct metric *metric = run_series(i);
    return metric ? metric->series : NULL;
}

int run_series_find(const char *name, size_t length)
{
    const char *each;
    for (int i = 0; (each = run_series_name(i)); i++)
        if (strlen(each) == length && memcmp(each, name, length) == 0)
            return i;
    return -1;
}

void series_add(
        struct history series[SERIES_MAX], int64_t step,
        const struct metric_table *table, const void *from, size_t bytes,
        int count)
{
    const struct metric *metric;
    for (int i = 0; (metric = run_series(i)); i++) {
        double most = NAN;
        if (metric < table->rows || metric >= table->rows + table->count)
            continue;
        for (int one = 0; one < count; one++)
            most = fmax(
                    most, metric_number(
                                  metric,
                                  (const char *)from + (size_t)one * bytes, 0));
        history_add(&series[i], step, most);
    }
}

json_t *series_json(
        const struct history series[SERIES_MAX], const char *names,
        int64_t since, int max)
{
    json_t *shown = json_object(), *all = json_array();
    const char *name;
    for (int i = 0; (name = run_series_name(i)); i++) {
        json_array_append_new(all, json_string(name));
        if (!names[0] || words_have(names, ",", name))
            json_object_set_new(
                    shown, name, history_json(&series[i], since, max));
    }
    return json_pack("{s:o, s:o}", "series", shown, "names", all);
}

/* --- rows of metrics.jsonl --- */

struct reading {
    struct history *series;
    int64_t last_step;
};

/* False: it is torn, or of a step that the resumed run makes again. */
static bool add_row(void *ctx, const char *line, const json_t *row)
{
    struct reading *to = ctx;
    const json_t *at = json_object_get(row, "step");
    int64_t step = json_is_integer(at) ? json_integer_value(at) : -1;
    const struct metric *metric;
    if (step < 0 || step > to->last_step)
        return false;
    for (int i = 0; (metric = run_series(i)); i++)
        if (metric->name)
            history_add(&to->series[i], step, metric_of_row(metric, row));
    return true;
}

struct history *series_read(const char *path, int64_t step)
{
    struct reading to = {zd_array(SERIES_MAX, sizeof *to.series), step};
    size_t kept;
    if (file_rows(path, add_row, &to, &kept) != ZD_OK)
        zd_error_clear();
    return to.series;
}

void series_free(struct history *series)
{
    for (int i = 0; series && i < SERIES_MAX; i++)
        history_fini(&series[i]);
    free(series);
}
