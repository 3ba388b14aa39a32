#include "daemon/sinks/sink.h"
#include "daemon/sinks/tensorboard_record.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>

static struct state_case c;
static struct sink sink;

static void setup(void)
{
    state_case_init(&c);
    c.job.report.tensorboard = true;
    cr_assert_eq(tensorboard_open(&c.job, &sink), ZD_OK);
}

static void teardown(void)
{
    state_case_fini(&c);
}

TestSuite(tensorboard, .init = setup, .fini = teardown);

static void expect_hex(const struct record_bytes *bytes, const char *hex)
{
    cr_assert_eq(2 * bytes->used, strlen(hex));
    for (size_t i = 0; i < bytes->used; i++) {
        char two[3];
        ZD_PRINT(two, "%02x", (unsigned char)bytes->data[i]);
        cr_expect_eq(strncmp(two, hex + 2 * i, 2), 0, "byte %zu", i);
    }
}

/* As TensorFlow's own writer has them. */
Test(tensorboard, records_are_those_of_the_format)
{
    struct record_bytes out = {0}, summary = {0};
    record_add_version(&out, 1.0);
    expect_hex(
            &out, "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e45"
                  "76656e743a3286bf577a");
    out.used = 0;
    record_add_scalar(&summary, "train/loss", 2.5);
    record_add_event(&out, 2.0, 10, &summary);
    expect_hex(
            &out, "200000000000000029eda950090000000000000040100a2a130a110a0a74"
                  "7261696e2f6c6f737315000020404c0011c3");
    record_bytes_fini(&out);
    record_bytes_fini(&summary);
    sink.close(sink.ctx, &c.state);
}

Test(tensorboard, a_run_without_steps_and_a_job_without_it_leave_nothing)
{
    struct sink none = {0};
    sink.take(sink.ctx, "tick", &c.state);
    sink.close(sink.ctx, &c.state);
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "tensorboard")));
    c.job.report.tensorboard = false;
    cr_expect_eq(tensorboard_open(&c.job, &none), ZD_OK);
    cr_expect_null(none.close);
}
