/* The sinks that are a text of the run's state: status.json, the Prometheus
 * text file, report.html. */
#include "base/file/json.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>

static struct state_case c;
static struct sink status, text, html;
static json_t *config;

static void setup(void)
{
    state_case_init(&c);
    config = json_pack("{s:s}", "file", "tiny.toml");
    c.job.report.html = true;
    c.job.report.prometheus_textfile = c.scratch.dir;
    cr_assert_eq(status_file_open(&c.job, &status), ZD_OK);
    cr_assert_eq(textfile_open(&c.job, &text), ZD_OK);
    cr_assert_eq(report_html_open(&c.job, config, &html), ZD_OK);
}

static void close_all(void)
{
    struct sink *const sinks[] = {&status, &text, &html};
    for (int i = 0; i < 3; i++)
        sinks[i]->close(sinks[i]->ctx, &c.state);
}

static void teardown(void)
{
    json_decref(config);
    state_case_fini(&c);
}

TestSuite(text_sinks, .init = setup, .fini = teardown);

static json_t *read_status(void)
{
    json_t *json = NULL;
    cr_assert_eq(
            json_parse_file(
                    scratch_path(&c.scratch, "status.json"), 1 << 20, &json),
            ZD_OK);
    return json;
}

static void expect_status(const char *state, int64_t step)
{
    json_t *json = read_status();
    cr_expect_str_eq(json_string_value(json_object_get(json, "state")), state);
    cr_expect_eq(json_integer_value(json_object_get(json, "step")), step);
    json_decref(json);
}

Test(text_sinks, files_follow_the_run_and_tell_its_end)
{
    status.take(status.ctx, SINK_TICK, &c.state);
    state_case_wait(&c, "status.json");
    expect_status("running", 120);
    state_case_step(&c, 2.25);
    c.state.state = RUN_STOPPED;
    close_all();
    expect_status("stopped", 121);
    char *told = state_case_read(&c, "zerod_tiny.prom", NULL);
    cr_expect_eq(
            state_case_metric(told, "zerod_job_state", "state=stopped"), 1);
    cr_expect_eq(state_case_metric(told, "zerod_rank_up", "rank=0"), 0);
    cr_expect_null(strstr(told, "process_open_fds"));
    free(told);
}

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
    cr_expect_eq(report_html_open(&c.job, config, &none), ZD_OK);
    cr_expect_eq(textfile_open(&c.job, &none), ZD_OK);
    cr_expect_null(none.close);
}

Test(text_sinks, status_has_the_numbers_to_the_last_digit)
{
    close_all();
    json_t *json = read_status();
    cr_expect_eq(
            json_real_value(json_object_get(json, "learning_rate")), 0.00029);
    cr_expect_eq(json_real_value(json_object_get(json, "loss")), 2.3125);
    json_decref(json);
}

Test(text_sinks, status_answers_for_status_ranks_and_memory)
{
    close_all();
    json_t *json = read_status(), *member;
    json_t *answers[] = {
            run_state_status(&c.state), run_state_ranks(&c.state),
            run_state_memory(&c.state)};
    const char *key;
    json_object_foreach(answers[0], key, member)
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

/* What stands in the element for the data, as a browser cuts it out. */
static json_t *read_data(void)
{
    static const char marker[] =
            "<script id=\"zerod-data\" type=\"application/json\">";
    json_t *json = NULL;
    char *page = state_case_read(&c, "report.html", NULL);
    cr_assert(page);
    char *begin = strstr(page, marker);
    cr_assert(begin);
    begin += strlen(marker);
    char *end = strstr(begin, "</script>");
    cr_assert(end);
    cr_assert_eq(
            json_parse(
                    begin, (size_t)(end - begin), "data", ZD_ERR_DATA, &json),
            ZD_OK);
    free(page);
    return json;
}

Test(text_sinks, report_has_the_numbers_and_no_sample_breaks_out)
{
    static const char bad[] = "</script><script>alert(1)</script><!--"
                              "\xe2\x80\xa8\xe2\x80\xa9";
    state_case_sample(&c, "</SCRIPT >", bad);
    c.state.state = RUN_DONE;
    close_all();
    json_t *json = read_data();
    json_t *told = json_object_get(json, "status");
    cr_expect_str_eq(json_string_value(json_object_get(told, "state")), "done");
    cr_expect_eq(json_integer_value(json_object_get(told, "step")), 120);
    json_t *samples =
            json_object_get(json_object_get(json, "samples"), "samples");
    if (!samples)
        samples = json_object_get(json, "samples");
    json_t *sample = json_array_get(samples, 0);
    cr_expect_str_eq(json_string_value(json_object_get(sample, "text")), bad);
    cr_expect(json_object_get(json, "history"));
    cr_expect_str_eq(
            json_string_value(
                    json_object_get(json_object_get(json, "config"), "file")),
            "tiny.toml");
    json_decref(json);
    char *page = state_case_read(&c, "report.html", NULL);
    cr_expect_null(strstr(page, "\xe2\x80\xa8"));
    cr_expect_null(strstr(page, "alert(1)<"));
    free(page);
}
