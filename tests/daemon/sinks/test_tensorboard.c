#include "daemon/sinks/sink.h"
#include "daemon/sinks/tensorboard_record.h"
#include "tests/daemon/sinks/event_file.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <unistd.h>

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

/* The only file of the folder, and how many there are. */
static int find_file(char *name, size_t room)
{
    struct dirent *entry;
    int count = 0;
    DIR *dir = opendir(scratch_path(&c.scratch, "tensorboard"));
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.') {
            count++;
            snprintf(name, room, "tensorboard/%s", entry->d_name);
        }
    if (dir)
        closedir(dir);
    return count;
}

struct reader {
    char *data;
    size_t bytes, at;
};

static struct reader open_file(void)
{
    char name[512];
    struct reader reader = {0};
    cr_assert_eq(find_file(name, sizeof name), 1);
    cr_expect_eq(strncmp(name, "tensorboard/events.out.tfevents.", 32), 0);
    reader.data = state_case_read(&c, name, &reader.bytes);
    return reader;
}

static struct event read_next(struct reader *reader)
{
    struct event event;
    cr_assert(event_read(reader->data, reader->bytes, &reader->at, &event));
    return event;
}

static void expect_number(
        const struct event *event, const char *tag, double want)
{
    const struct event_value *value = event_find(event, tag);
    cr_assert(value, "%s is not there", tag);
    cr_expect_eq(value->number, (float)want, "%s: %g", tag, value->number);
}

static void expect_end(struct reader *reader)
{
    cr_expect_eq(reader->at, reader->bytes);
    free(reader->data);
}

static void expect_hex(const struct record_bytes *bytes, const char *hex)
{
    cr_assert_eq(2 * bytes->used, strlen(hex));
    for (size_t i = 0; i < bytes->used; i++) {
        char two[3];
        snprintf(two, sizeof two, "%02x", (unsigned char)bytes->data[i]);
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
    cr_expect_eq(event_crc("123456789", 9), 0xe3069283u);
    for (size_t bytes = 0; bytes < 9; bytes++) {
        uint32_t crc = event_crc("123456789", bytes);
        cr_expect_eq(
                record_crc("123456789", bytes),
                (crc >> 15 | crc << 17) + 0xa282ead8u);
    }
    sink.close(sink.ctx, &c.state);
}

Test(tensorboard, a_step_s_numbers_stand_under_their_tags)
{
    c.state.step.loss_scale.scale = 1024;
    c.state.step.offload.active = true;
    c.state.step.offload.engine.wait_host_seconds = 0.03;
    sink.take(sink.ctx, SINK_STEP, &c.state);
    c.state.eval_step = 120;
    sink.take(sink.ctx, SINK_EVAL, &c.state);
    sink.close(sink.ctx, &c.state);
    struct reader reader = open_file();
    struct event event = read_next(&reader);
    cr_expect_str_eq(event.version, "brain.Event:2");
    event = read_next(&reader);
    cr_expect_eq(event.step, 120);
    cr_expect_eq(event.wall_time, c.state.updated);
    expect_number(&event, "train/loss", 2.3125);
    expect_number(&event, "train/grad_norm", 0.84375);
    expect_number(&event, "train/learning_rate", 0.00029);
    expect_number(&event, "train/loss_scale", 1024);
    expect_number(&event, "perf/tokens_per_second", 18204.5);
    expect_number(&event, "perf/step_seconds", 0.225);
    expect_number(&event, "perf/data_wait", 0.001);
    expect_number(&event, "perf/forward", 0.07);
    expect_number(&event, "perf/backward", 0.14);
    expect_number(&event, "perf/reduce", 0.005);
    expect_number(&event, "perf/update", 0.006);
    expect_number(&event, "perf/gather", 0.003);
    expect_number(&event, "perf/offload_wait", 0.03);
    expect_number(&event, "comm/exposed_seconds", 0.005 + 0.003);
    expect_number(&event, "memory/resident_gib", 510000000 / 1073741824.0);
    cr_expect_eq(event.value_count, 15);
    event = read_next(&reader);
    cr_expect_eq(event.step, 120);
    cr_expect_eq(event.value_count, 1);
    expect_number(&event, "eval/loss", 2.40625);
    expect_end(&reader);
}

Test(tensorboard, samples_are_texts_of_their_prompt)
{
    state_case_sample(&c, "Once\nupon", " a time\n\nthere was");
    sink.take(sink.ctx, SINK_SAMPLE, &c.state);
    state_case_sample(&c, "", "# no heading");
    sink.take(sink.ctx, SINK_SAMPLE, &c.state);
    /* the tag ends before a character that would be cut */
    state_case_sample(
            &c,
            "0123456789012345678901234567890123456789012345678901234"
            "\xc3\xa4",
            "");
    sink.take(sink.ctx, SINK_SAMPLE, &c.state);
    sink.close(sink.ctx, &c.state);
    struct reader reader = open_file();
    read_next(&reader);
    struct event event = read_next(&reader);
    cr_expect_eq(event.step, 120);
    cr_expect_str_eq(event.values[0].tag, "samples/Once upon");
    cr_expect_str_eq(event.values[0].plugin, "text");
    cr_expect_str_eq(
            event.values[0].text,
            "    Once\n    upon a time\n    \n    there was");
    event = read_next(&reader);
    cr_expect_str_eq(event.values[0].tag, "samples/(no prompt)");
    cr_expect_str_eq(event.values[0].text, "    # no heading");
    event = read_next(&reader);
    cr_expect_str_eq(
            event.values[0].tag,
            "samples/0123456789012345678901234567890123456789012345678901234");
    expect_end(&reader);
}

Test(tensorboard, steps_come_as_often_as_the_log_says)
{
    int64_t want[] = {1, 10, 14, 16, 18, 20, 399, 400};
    c.job.log.logging_first_step = true;
    for (int step = 1; step <= 20; step++) {
        c.state.step.step = step;
        c.state.step.settings[SET_LOGGING_STEPS] = step > 12 ? 2 : 10;
        sink.take(sink.ctx, SINK_STEP, &c.state);
    }
    c.state.step.settings[SET_LOGGING_STEPS] = 7;
    for (int step = 395; step <= 400; step++) {
        c.state.step.step = step;
        sink.take(sink.ctx, SINK_STEP, &c.state);
    }
    sink.close(sink.ctx, &c.state);
    struct reader reader = open_file();
    read_next(&reader);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct event event = read_next(&reader);
        cr_expect_eq(event.step, want[i], "%lld", (long long)event.step);
    }
    expect_end(&reader);
}

Test(tensorboard, a_loss_that_is_not_finite_is_told_as_it_is)
{
    state_case_step(&c, NAN);
    sink.take(sink.ctx, SINK_STEP, &c.state);
    state_case_step(&c, INFINITY);
    sink.take(sink.ctx, SINK_STEP, &c.state);
    sink.close(sink.ctx, &c.state);
    struct reader reader = open_file();
    read_next(&reader);
    struct event event = read_next(&reader);
    cr_expect(isnan(event_find(&event, "train/loss")->number));
    event = read_next(&reader);
    cr_expect(isinf(event_find(&event, "train/loss")->number));
    cr_expect_null(event_find(&event, "train/loss_scale"));
    expect_end(&reader);
}

Test(tensorboard, a_resumed_run_takes_a_new_file_and_drops_what_was_undone)
{
    sink.take(sink.ctx, SINK_STEP, &c.state);
    sink.close(sink.ctx, &c.state);
    char first[512], last[512];
    cr_assert_eq(find_file(first, sizeof first), 1);
    cr_assert_eq(tensorboard_open(&c.job, &sink), ZD_OK);
    c.state.facts.first_step = 100;
    c.state.step.step = 101;
    sink.take(sink.ctx, SINK_STEP, &c.state);
    sink.close(sink.ctx, &c.state);
    cr_expect_eq(find_file(last, sizeof last), 2);
    unlink(scratch_path(&c.scratch, first));
    struct reader reader = open_file();
    cr_expect_str_eq(read_next(&reader).version, "brain.Event:2");
    struct event event = read_next(&reader);
    cr_expect_eq(event.session, 1);
    cr_expect_eq(event.step, 101);
    cr_expect_eq(read_next(&reader).step, 101);
    expect_end(&reader);
}

Test(tensorboard, a_run_without_steps_and_a_job_without_it_leave_nothing)
{
    struct sink none = {0};
    sink.take(sink.ctx, SINK_TICK, &c.state);
    sink.close(sink.ctx, &c.state);
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "tensorboard")));
    c.job.report.tensorboard = false;
    cr_expect_eq(tensorboard_open(&c.job, &none), ZD_OK);
    cr_expect_null(none.close);
}
