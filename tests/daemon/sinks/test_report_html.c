#include "base/file/json.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>

static struct state_case c;
static struct sink sink;
static json_t *config;

static void setup(void)
{
    state_case_init(&c);
    c.job.report.html = true;
    config = json_pack("{s:s}", "file", "tiny.toml");
    cr_assert_eq(report_html_open(&c.job, config, &sink), ZD_OK);
}

static void teardown(void)
{
    json_decref(config);
    state_case_fini(&c);
}

TestSuite(report_html, .init = setup, .fini = teardown);

/* What stands in the element for the data, as a browser cuts it out. */
static json_t *read_data(void)
{
    static const char marker[] =
            "<script id=\"zerod-data\" type=\"application/json\">";
    json_t *json = NULL;
    char *html = state_case_read(&c, "report.html", NULL);
    cr_assert(html);
    char *begin = strstr(html, marker);
    cr_assert(begin);
    begin += strlen(marker);
    char *end = strstr(begin, "</script>");
    cr_assert(end);
    cr_assert_eq(
            json_parse(
                    begin, (size_t)(end - begin), "data", ZD_ERR_DATA, &json),
            ZD_OK);
    free(html);
    return json;
}

Test(report_html, has_the_run_s_numbers_and_no_sample_breaks_out)
{
    static const char bad[] = "</script><script>alert(1)</script><!--"
                              "\xe2\x80\xa8\xe2\x80\xa9";
    state_case_sample(&c, "</SCRIPT >", bad);
    c.state.state = RUN_DONE;
    sink.close(sink.ctx, &c.state);
    json_t *json = read_data();
    json_t *status = json_object_get(json, "status");
    cr_expect_str_eq(
            json_string_value(json_object_get(status, "state")), "done");
    cr_expect_eq(json_integer_value(json_object_get(status, "step")), 120);
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
    char *html = state_case_read(&c, "report.html", NULL);
    cr_expect_null(strstr(html, "\xe2\x80\xa8"));
    cr_expect_null(strstr(html, "alert(1)<"));
    free(html);
}

Test(report_html, is_not_written_without_a_banner_or_the_wish)
{
    c.state.has_banner = false;
    c.state.state = RUN_FAILED;
    sink.close(sink.ctx, &c.state);
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "report.html")));
    c.job.report.html = false;
    sink = (struct sink){0};
    cr_expect_eq(report_html_open(&c.job, config, &sink), ZD_OK);
    cr_expect_null(sink.close);
}
