#include "base/file/json.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>

static struct state_case c;
static struct sink sink;

static void setup(void)
{
    state_case_init(&c);
    cr_assert_eq(status_file_open(&c.job, &sink), ZD_OK);
}

static void teardown(void)
{
    state_case_fini(&c);
}

TestSuite(status_file, .init = setup, .fini = teardown);

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

Test(status_file, is_the_status_at_each_tick_and_at_the_end)
{
    sink.take(sink.ctx, SINK_TICK, &c.state);
    state_case_wait(&c, "status.json");
    expect_status("running", 120);
    state_case_step(&c, 2.25);
    sink.take(sink.ctx, SINK_TICK, &c.state);
    c.state.state = RUN_STOPPED;
    sink.close(sink.ctx, &c.state);
    expect_status("stopped", 121);
}

Test(status_file, is_not_written_before_the_folder_is_the_run_s)
{
    c.state.has_banner = false;
    c.state.state = RUN_STARTING;
    sink.take(sink.ctx, SINK_TICK, &c.state);
    c.state.state = RUN_FAILED;
    sink.close(sink.ctx, &c.state);
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "status.json")));
}

Test(status_file, has_the_numbers_to_the_last_digit)
{
    sink.close(sink.ctx, &c.state);
    json_t *json = read_status();
    cr_expect_eq(
            json_real_value(json_object_get(json, "learning_rate")), 0.00029);
    cr_expect_eq(json_real_value(json_object_get(json, "loss")), 2.3125);
    json_decref(json);
}

Test(status_file, answers_for_status_ranks_and_memory)
{
    sink.close(sink.ctx, &c.state);
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
