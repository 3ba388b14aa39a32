/* The sinks that are a text of the run's state: status.json, the Prometheus
 * text file, report.html. What they hold of a run: test_run.sh. */
#include "base/file/json.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>

static struct state_case c;
static struct sink status, text, html;

static void setup(void)
{
    state_case_init(&c);
    c.state.config = json_pack("{s:s}", "file", "tiny.toml");
    c.job.report.html = true;
    c.job.report.prometheus_textfile = c.scratch.dir;
    cr_assert_eq(text_file_open(&c.job, TEXT_STATUS, &status), ZD_OK);
    cr_assert_eq(text_file_open(&c.job, TEXT_PROMETHEUS, &text), ZD_OK);
    cr_assert_eq(text_file_open(&c.job, TEXT_REPORT, &html), ZD_OK);
}

static void close_all(void)
{
    struct sink *const sinks[] = {&status, &text, &html};
    for (int i = 0; i < 3; i++)
        sinks[i]->close(sinks[i]->ctx, &c.state);
}

static void teardown(void)
{
    json_decref(c.state.config);
    state_case_fini(&c);
}

TestSuite(text_sinks, .init = setup, .fini = teardown);

Test(text_sinks, nothing_is_written_before_the_banner_or_without_the_key)
{
    static const char *const names[] = {
            "status.json", "zerod_tiny.prom", "report.html"};
    struct sink none = {0};
    c.state.has_banner = false;
    c.state.state = RUN_FAILED;
    close_all();
    for (int i = 0; i < 3; i++)
        cr_expect_not(
                fs_exists(scratch_path(&c.scratch, names[i])), "%s", names[i]);
    c.job.report.html = false;
    c.job.report.prometheus_textfile = NULL;
    cr_expect_eq(text_file_open(&c.job, TEXT_REPORT, &none), ZD_OK);
    cr_expect_eq(text_file_open(&c.job, TEXT_PROMETHEUS, &none), ZD_OK);
    cr_expect_null(none.close);
}

Test(text_sinks, status_answers_for_status_ranks_and_memory)
{
    close_all();
    json_t *json;
    const char *path = scratch_path(&c.scratch, "status.json");
    cr_assert_eq(json_parse_file(path, 1 << 20, &json), ZD_OK);
    json_t *answers[] = {
            run_state_status(&c.state), run_state_ranks(&c.state),
            run_state_memory(&c.state)};
    JSON_MEMBERS(key, member, answers[0])
        cr_expect_not_null(json_object_get(json, key), "%s", key);
    cr_expect(json_equal(
            json_object_get(json, "ranks"),
            json_object_get(answers[1], "ranks")));
    cr_expect(json_equal(
            json_object_get(json, "memory"),
            json_object_get(answers[2], "ranks")));
    for (int i = 0; i < 3; i++)
        json_decref(answers[i]);
    json_decref(json);
}
