/* The dashboard and the alerts of deploy/ ask for metrics that there are, by
 * labels that these have. */
#include "base/file/json.h"
#include "daemon/sinks/prometheus.h"
#include "tests/daemon/sinks/metrics_text.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>
#include <ctype.h>

static struct state_case c;
static struct metrics metrics;

static void setup(void)
{
    size_t bytes;
    state_case_init(&c);
    char *text = prometheus_write(&c.state, PROMETHEUS_TEXTFILE, &bytes);
    metrics = metrics_parse(text, bytes, false);
    free(text);
}

static void teardown(void)
{
    metrics_free(&metrics);
    state_case_fini(&c);
}

TestSuite(dashboards, .init = setup, .fini = teardown);

/* Labels that the server adds to what it scrapes. */
static bool is_target_label(const char *name)
{
    return strcmp(name, "instance") == 0 || strcmp(name, "job") == 0;
}

static const struct metric_sample *first_of(const char *name)
{
    for (int i = 0; i < metrics.count; i++)
        if (strcmp(metrics.samples[i].name, name) == 0)
            return &metrics.samples[i];
    return NULL;
}

static size_t word_length(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_')
        n++;
    return n;
}

/* {label="..", label=~".."} after a name. */
static void check_selector(
        const char *at, const struct metric_sample *sample, const char *query)
{
    char label[64];
    if (*at != '{')
        return;
    for (at++; *at && *at != '}';) {
        size_t n = word_length(at);
        cr_assert(n > 0 && n < sizeof label, "%s", query);
        snprintf(label, sizeof label, "%.*s", (int)n, at);
        cr_expect(
                is_target_label(label) || metric_label(sample, label),
                "%s has no label %s: %s", sample->name, label, query);
        at = strchr(at, '"');
        cr_assert(at);
        at = strchr(at + 1, '"');
        cr_assert(at);
        at++;
        at += strspn(at, ", ");
    }
}

/* Every zerod_* in `query` that is not the label of that name. */
static int check_query(const char *query)
{
    char name[96];
    int found = 0;
    for (const char *at = query; *at;) {
        size_t n = word_length(at);
        if (n == 0) {
            at++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        at += n;
        bool is_metric = strncmp(name, "zerod_", 6) == 0 &&
                         strcmp(name, "zerod_job") != 0;
        if (!is_metric)
            continue;
        const struct metric_sample *sample = first_of(name);
        cr_expect(sample, "no metric %s: %s", name, query);
        if (sample)
            check_selector(at, sample, query);
        found++;
    }
    return found;
}

static void check_panel(const json_t *panel)
{
    const json_t *targets = json_object_get(panel, "targets"), *target;
    const char *title = json_string_value(json_object_get(panel, "title"));
    size_t i;
    cr_expect(title && *title);
    cr_expect(json_array_size(targets) > 0, "%s asks for nothing", title);
    json_array_foreach(targets, i, target)
    {
        const char *query = json_string_value(json_object_get(target, "expr"));
        cr_assert(query, "%s", title);
        cr_expect(check_query(query) > 0, "%s: %s", title, query);
        cr_expect(strstr(query, "zerod_job=\"$zerod_job\""), "%s", query);
    }
}

Test(dashboards, the_dashboard_asks_for_metrics_that_there_are)
{
    json_t *dashboard;
    const json_t *panel;
    size_t i;
    cr_assert_eq(
            json_parse_file(
                    SOURCE_ROOT "/deploy/grafana/zerod.json", 1 << 20,
                    &dashboard),
            ZD_OK);
    const json_t *panels = json_object_get(dashboard, "panels");
    cr_expect(json_array_size(panels) > 10);
    json_array_foreach(panels, i, panel) check_panel(panel);
    json_decref(dashboard);
}

/* Whole files: their comments and texts name no metric that is not there
 * either. */
static void check_file(const char *path, int least)
{
    char *text;
    size_t bytes;
    cr_assert_eq(fs_read_file(path, 1 << 20, &text, &bytes), ZD_OK);
    cr_expect(check_query(text) >= least, "%s", path);
    free(text);
}

Test(dashboards, the_alerts_ask_for_metrics_that_there_are)
{
    check_file(SOURCE_ROOT "/deploy/prometheus/zerod.rules.yml", 10);
    check_file(SOURCE_ROOT "/deploy/prometheus/zerod.test.yml", 10);
}

Test(dashboards, docs_metrics_has_every_metric)
{
    char *text, family[128];
    size_t bytes;
    cr_assert_eq(
            fs_read_file(
                    SOURCE_ROOT "/docs/metrics.md", 1 << 20, &text, &bytes),
            ZD_OK);
    for (int i = 0; i < metrics.count; i++) {
        snprintf(family, sizeof family, "`%s`", metrics.samples[i].family);
        cr_expect(strstr(text, family), "docs/metrics.md has no %s", family);
    }
    free(text);
}
