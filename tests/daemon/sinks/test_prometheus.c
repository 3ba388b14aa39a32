#include "daemon/sinks/sink.h"

#include "base/clock.h"
#include "base/must.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>
#include <math.h>

static struct state_case c;

static void setup(void)
{
    state_case_init(&c);
    c.state.state_since = 1795200001.75;
}

static void teardown(void)
{
    state_case_fini(&c);
}

TestSuite(prometheus, .init = setup, .fini = teardown);

/* Borrowed until the next call. */
static const char *read_text(void)
{
    static char *text;
    size_t bytes;
    free(text);
    text = prometheus_write(&c.state, &bytes);
    cr_assert_eq(strlen(text), bytes);
    return text;
}

static double value_of(const char *name, const char *labels)
{
    return state_case_metric(read_text(), name, labels);
}

Test(prometheus, every_number_stands_under_its_name)
{
    const char *text = read_text();
    double now = clock_wall_seconds(), want;
    char line[200], name[80], labels[80], all[128];
    int count = 0;
    FILE *file = fopen("tests/daemon/sinks/prometheus.txt", "r");
    cr_assert(file);
    for (; fgets(line, sizeof line, file); count++) {
        if (line[0] == '#')
            continue;
        cr_assert_eq(sscanf(line, "%79s %79s %lf", name, labels, &want), 3);
        bool has = labels[0] != '-';
        ZD_PRINT(all, "zerod_job=tiny%s%s", has ? "," : "", has ? labels : "");
        double value = state_case_metric(text, name, all);
        cr_expect_eq(value, want, "%s{%s} %.17g", name, all, value);
    }
    fclose(file);
    cr_expect_gt(count, 60);
    double told = value_of("zerod_report_timestamp_seconds", "");
    cr_expect(told <= now + 1 && told > now - 60);
}

Test(prometheus, what_is_not_known_is_left_out)
{
    static const char *const unknown[] = {
            "zerod_train_loss",        "zerod_train_grad_norm",
            "zerod_train_loss_scale",  "zerod_eval_loss",
            "zerod_eval_best_loss",    "zerod_train_eta_seconds",
            "zerod_train_epoch",       "zerod_train_steps_target",
            "zerod_checkpoint_bytes",  "zerod_checkpoint_last_step",
            "zerod_model_flops_total", "zerod_rank_up"};
    size_t bytes;
    struct run_state *state = run_state_create(&c.job, NULL);
    ZD_FREED char *text = prometheus_write(state, &bytes);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        cr_expect_null(strstr(text, unknown[i]), "%s", unknown[i]);
    cr_expect_eq(
            state_case_metric(text, "zerod_job_state", "state=starting"), 1);
    run_state_destroy(state);
}

Test(prometheus, a_loss_that_is_not_finite_is_told)
{
    c.state.step.loss = NAN;
    c.state.step.grad_norm = INFINITY;
    const char *text = read_text();
    cr_expect(strstr(text, "\nzerod_train_loss{zerod_job=\"tiny\"} NaN\n"));
    cr_expect(
            strstr(text, "\nzerod_train_grad_norm{zerod_job=\"tiny\"} +Inf\n"));
}

Test(prometheus, labels_are_escaped)
{
    c.job.model.path = "C:\\data \"x\"\nline {2},\\n";
    strcpy(c.ranks[1].host, "a\"b");
    const char *text = read_text();
    cr_expect(strstr(text, "model=\"C:\\\\data \\\"x\\\"\\nline {2},\\\\n\""));
    cr_expect(strstr(text, "host=\"a\\\"b\""));
}

static double up(int rank)
{
    return value_of("zerod_rank_up", rank ? "rank=1" : "rank=0");
}

Test(prometheus, a_rank_is_up_while_it_is_heard_or_need_not_answer)
{
    double now = clock_wall_seconds();
    c.state.state_since = now - 500;
    c.ranks[0].heartbeat = now - 10;
    c.ranks[1].heartbeat = now - 70;
    cr_expect_eq(up(0), 1);
    cr_expect_eq(up(1), 0);
    c.state.mean_step_seconds = 8;
    cr_expect_eq(up(1), 1, "steps are slow");
    c.state.mean_step_seconds = 0.2;
    c.state.state = RUN_PAUSED;
    cr_expect_eq(up(1), 1, "paused");
    c.state.state = RUN_RUNNING;
    c.state.state_since = now - 5;
    cr_expect_eq(up(1), 1, "just went on");
    c.state.state = RUN_DONE;
    cr_expect_eq(up(0), 0);
}
