#include "daemon/reference/metrics_page.h"

#include "daemon/reference/page_parts.h"
#include "daemon/state/run_state.h"

#include <string.h>

/* --- metrics.jsonl -------------------------------------------------------- */

static bool is_key(const struct metric *metric)
{
    return metric->name && !(metric->flags & METRIC_SUM);
}

/* Rows without a help share the line of the one before. */
static void put_rows(FILE *stream)
{
    const struct metric *rows = step_metrics.rows, *end = rows;
    for (; rows < step_metrics.rows + step_metrics.count; rows = end) {
        const char *comma = "";
        fputs("| ", stream);
        end = rows;
        do {
            if (is_key(end))
                fprintf(stream, "%s`%s`", comma, end->name);
            comma = ", ";
        } while (++end < step_metrics.rows + step_metrics.count && !end->help);
        fputs(" | ", stream);
        comma = "";
        for (const struct metric *row = rows; row < end; row++)
            if (row->series) {
                fprintf(stream, "%s`%s`", comma, row->series);
                comma = ", ";
            }
        fprintf(stream, " | %s |\n", rows->help);
    }
}

/* --- Prometheus ----------------------------------------------------------- */

static void put_label(FILE *stream, const char **mark, const char *label)
{
    fprintf(stream, "%s`%s`", *mark, label);
    *mark = "; ";
}

static void put_index(
        FILE *stream, const char **mark, const struct metric_index *index)
{
    if (!index)
        return;
    put_label(stream, mark, index->label);
    for (int i = 0; i < index->count; i++)
        fprintf(stream, "%s%s", i ? ", " : ": ", index->name(i));
}

/* Returns the row after the family. */
static const struct metric *put_family(
        FILE *stream, const struct metric *row, const struct metric *end,
        bool is_rank)
{
    static const char *const kinds[] = {
            "gauge", "counter", "info", "histogram"};
    const struct metric *first = row;
    const char *mark = "", *between = ": ";
    fprintf(stream, "| `%s%s` | %s | ", row->family,
            row->kind == FAMILY_COUNTER ? "_total" : "", kinds[row->kind]);
    if (is_rank)
        put_label(stream, &mark, "rank");
    if (row->label)
        put_label(stream, &mark, row->label);
    put_index(stream, &mark, row->index);
    put_index(stream, &mark, row->inner);
    for (; row < end && row->family && strcmp(row->family, first->family) == 0;
         row++)
        if (row->label_value) {
            fprintf(stream, "%s%s", between, row->label_value);
            between = ", ";
        }
    fprintf(stream, " | %s |\n", first->help);
    return row;
}

static void put_families(FILE *stream)
{
    const struct metric_table *const tables[] = {
            &run_metrics, &step_metrics, &rank_metrics};
    for (int t = 0; t < 3; t++) {
        const struct metric *row = tables[t]->rows;
        const struct metric *end = row + tables[t]->count;
        while (row < end)
            row = row->family ? put_family(
                                        stream, row, end,
                                        tables[t] == &rank_metrics)
                              : row + 1;
    }
}

enum zd_status metrics_page_make(const char *path, char **text_out)
{
    static const struct page_part parts[] = {
            {"<!-- rows: ", "<!-- end of rows -->", put_rows},
            {"<!-- families: ", "<!-- end of families -->", put_families}};
    return page_make(path, parts, 2, text_out);
}
