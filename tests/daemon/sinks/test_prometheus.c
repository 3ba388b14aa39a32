#include "daemon/sinks/sink.h"

#include "base/clock.h"
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

struct expected {
    const char *name, *labels;
    double value;
};

static const struct expected all[] = {
        {"zerod_job_info", "dtype=bf16,zero_stage=3,world_size=2", 1},
        {"zerod_job_state", "state=running", 1},
        {"zerod_job_state", "state=paused", 0},
        {"zerod_job_state", "state=failed", 0},
        {"zerod_job_start_timestamp_seconds", "", 1795200000.25},
        {"zerod_job_state_timestamp_seconds", "", 1795200001.75},
        {"zerod_control_dropped_messages_total", "", 5},
        {"zerod_train_steps_total", "", 120},
        {"zerod_train_steps_target", "", 400},
        {"zerod_train_tokens_total", "", 491520},
        {"zerod_train_samples_total", "", 3840},
        {"zerod_train_epoch", "", 3840.0 / 12288.0},
        {"zerod_train_eta_seconds", "", 280 * 0.22},
        {"zerod_train_last_step_timestamp_seconds", "", 1795200031.5},
        {"zerod_train_loss", "", 2.3125},
        {"zerod_train_grad_norm", "", 0.84375},
        {"zerod_train_learning_rate", "", 0.00029},
        {"zerod_eval_loss", "", 2.40625},
        {"zerod_eval_best_loss", "", 2.375},
        {"zerod_train_skipped_steps_total", "reason=overflow", 0},
        {"zerod_train_skipped_steps_total", "reason=nonfinite", 3},
        {"zerod_train_skipped_steps_total", "reason=no_targets", 1},
        {"zerod_step_duration_seconds_bucket", "le=0.1", 0},
        {"zerod_step_duration_seconds_bucket", "le=0.25", 110},
        {"zerod_step_duration_seconds_bucket", "le=1.0", 119},
        {"zerod_step_duration_seconds_bucket", "le=+Inf", 120},
        {"zerod_step_duration_seconds_sum", "", 326.5},
        {"zerod_step_duration_seconds_count", "", 120},
        {"zerod_step_phase_seconds_total", "phase=data", 0.25},
        {"zerod_step_phase_seconds_total", "phase=eval", 11.25},
        {"zerod_train_tokens_per_second", "", 4096 / 0.22},
        {"zerod_model_flops_total", "", 54e6 * 491520},
        {"zerod_rank_step", "rank=1", 120},
        {"zerod_rank_last_heartbeat_timestamp_seconds", "rank=0", 1795200030.5},
        {"zerod_data_wait_seconds_total", "rank=1", 110.5},
        {"zerod_memory_bytes", "rank=1,where=host,kind=grads", 40101},
        {"zerod_memory_planned_bytes", "rank=0,where=device", 300000},
        {"zerod_memory_taken_bytes", "rank=0,where=pinned", 302001},
        {"zerod_memory_limit_bytes", "rank=0", 12884901888},
        {"zerod_rank_resident_bytes", "rank=1", 510000001},
        {"zerod_rank_resident_peak_bytes", "rank=1", 520000001},
        {"zerod_gpu_info", "rank=1,gpu=GPU-1,pci=0000:3b:00.0", 1},
        {"zerod_gpu_memory_total_bytes", "rank=0,gpu=GPU-1", 150000000000},
        {"zerod_gpu_memory_used_bytes", "rank=1,gpu=GPU-1", 140000000000},
        {"zerod_gpu_memory_held_bytes", "rank=1,gpu=GPU-1", 130000000000},
        {"zerod_gpu_memory_planned_bytes", "rank=0,gpu=GPU-1", 120000000001},
        {"zerod_transfer_bytes_total", "rank=0,path=down", 1001},
        {"zerod_transfer_bytes_total", "rank=0,path=up", 1002},
        {"zerod_transfer_bytes_total", "rank=0,path=disk_read", 1003},
        {"zerod_transfer_bytes_total", "rank=0,path=disk_write", 1004},
        {"zerod_comm_bytes_total", "rank=1,op=reduce_scatter", 2001},
        {"zerod_comm_bytes_total", "rank=1,op=all_gather", 2002},
        {"zerod_comm_bytes_total", "rank=1,op=all_to_all", 2004},
        {"zerod_comm_bytes_total", "rank=1,op=all_reduce", 2003},
        {"zerod_comm_group_bytes_total", "rank=1,group=cp,op=all_to_all", 2004},
        {"zerod_checkpoint_last_step", "", 100},
        {"zerod_checkpoint_last_timestamp_seconds", "", 1795200025.75},
        {"zerod_checkpoint_bytes", "", 108000000},
        {"zerod_checkpoint_duration_seconds_bucket", "le=1.0", 2},
        {"zerod_checkpoint_duration_seconds_sum", "", 1.5},
        {"zerod_checkpoint_stall_seconds_total", "", 0.125},
        {"zerod_checkpoint_write_seconds_total", "", 1.375},
        {"zerod_checkpoint_failures_total", "", 2},
};

Test(prometheus, every_number_stands_under_its_name)
{
    const char *text = read_text();
    double now = clock_wall_seconds();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char labels[128];
        snprintf(
                labels, sizeof labels, "zerod_job=tiny%s%s",
                all[i].labels[0] ? "," : "", all[i].labels);
        double value = state_case_metric(text, all[i].name, labels);
        cr_expect_eq(
                value, all[i].value, "%s{%s} %.17g", all[i].name, labels,
                value);
    }
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
    char *text = prometheus_write(state, &bytes);
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        cr_expect_null(strstr(text, unknown[i]), "%s", unknown[i]);
    cr_expect_eq(
            state_case_metric(text, "zerod_job_state", "state=starting"), 1);
    free(text);
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
