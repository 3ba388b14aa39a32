#include "base/clock.h"
#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct state_case c;
static struct sink sink;
static int ear; /* systemd's end */

static void setup(void)
{
    state_case_init(&c);
    ear = -1;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
}

static void end(void)
{
    if (sink.close)
        sink.close(sink.ctx, &c.state);
    sink = (struct sink){0};
}

static void teardown(void)
{
    end();
    if (ear >= 0)
        close(ear);
    state_case_fini(&c);
}

TestSuite(systemd, .init = setup, .fini = teardown);

/* Listen at a path, or at an abstract name that begins with '@'. */
static void listen_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(name);
    memcpy(address.sun_path, name, bytes);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    ear = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    cr_assert_eq(
            bind(ear, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)),
            0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static void open_sink(const char *watchdog_usec)
{
    listen_at(scratch_path(&c.scratch, "notify"));
    if (watchdog_usec)
        setenv("WATCHDOG_USEC", watchdog_usec, 1);
    cr_assert_eq(systemd_open(&c.job, &sink), ZD_OK);
    cr_assert(sink.close);
}

/* All that was told since, lines ending in '\n'. */
static const char *heard(void)
{
    static char all[8192];
    size_t used = 0;
    ssize_t n;
    while ((n = recv(ear, all + used, sizeof all - used - 2, 0)) > 0) {
        used += (size_t)n;
        all[used++] = '\n';
    }
    all[used] = '\0';
    return all;
}

static bool has(const char *text, const char *line)
{
    size_t bytes = strlen(line);
    for (; text && *text; text = strchr(text, '\n') + 1)
        if (strncmp(text, line, bytes) == 0 && text[bytes] == '\n')
            return true;
    return false;
}

static const char *tick(enum train_run_state state)
{
    c.state.state = state;
    sink.take(sink.ctx, "tick", &c.state);
    return heard();
}

static void step(void)
{
    sink.take(sink.ctx, "step", &c.state);
}

static void pass(double seconds)
{
    double end = clock_seconds() + seconds;
    while (clock_seconds() < end)
        usleep(1000);
}

Test(systemd, a_unit_is_ready_after_the_first_step_and_not_before)
{
    open_sink(NULL);
    c.state.has_banner = false;
    const char *text = tick(RUN_STARTING);
    cr_expect_not(has(text, "READY=1"));
    cr_expect(has(text, "STATUS=starting"), "%s", text);
    c.state.has_banner = true;
    cr_expect_not(has(tick(RUN_RUNNING), "READY=1"));
    step();
    cr_expect(has(heard(), "READY=1"));
    step();
    cr_expect_not(has(tick(c.state.state), "READY=1"), "told twice");
}

Test(systemd, the_status_is_a_line_that_is_told_when_it_changes)
{
    open_sink(NULL);
    step();
    const char *text = tick(c.state.state);
    cr_expect(
            has(text, "STATUS=step 120/400 loss 2.312 eta 1m02s"), "%s", text);
    cr_expect_str_empty(tick(c.state.state));
    text = tick(RUN_PAUSED);
    cr_expect(has(text, "STATUS=paused, step 120/400 loss 2.312"), "%s", text);
    c.state.state = RUN_DONE;
    end();
    text = heard();
    cr_expect(has(text, "STOPPING=1"));
    cr_expect(has(text, "STATUS=done, step 120/400 loss 2.312"), "%s", text);
}

/* What the watchdog is told in a tick, half its time after the last. */
static bool is_fed(void)
{
    heard();
    pass(0.03);
    sink.take(sink.ctx, "tick", &c.state);
    return has(heard(), "WATCHDOG=1");
}

Test(systemd, the_watchdog_is_fed_by_steps_and_not_by_a_run_that_hangs)
{
    open_sink("50000");
    step();
    cr_expect(has(heard(), "WATCHDOG=1"));
    cr_expect_not(is_fed(), "no step was made");
    state_case_step(&c, 2);
    cr_expect(is_fed());
    cr_expect_not(is_fed());
    state_case_step(&c, 2);
    step();
    cr_expect(has(tick(c.state.state), "WATCHDOG=1"), "a step itself feeds");
}

/* An hour's watchdog: half of it does not pass between two lines of a test. */
Test(systemd, the_watchdog_is_not_fed_before_half_its_time)
{
    open_sink("3600000000");
    step();
    cr_expect(has(heard(), "WATCHDOG=1"));
    state_case_step(&c, 2);
    step();
    cr_expect_not(has(tick(c.state.state), "WATCHDOG=1"), "so soon");
}

Test(systemd, a_run_is_alive_outside_of_steps_but_not_stalled)
{
    open_sink("50000");
    step();
    c.state.state = RUN_PAUSED;
    cr_expect(is_fed());
    c.state.state = RUN_EVALUATING;
    cr_expect(is_fed());
    c.state.state = RUN_STALLED;
    cr_expect_not(is_fed());
    c.state.state = RUN_RUNNING;
    cr_expect_not(is_fed());
}

Test(systemd, nothing_feeds_the_watchdog_before_the_unit_is_ready)
{
    open_sink("50000");
    c.state.state = RUN_EVALUATING;
    cr_expect_not(is_fed());
    c.state.state = RUN_RUNNING;
}

Test(systemd, stopping_is_told_once)
{
    open_sink(NULL);
    step();
    cr_expect(has(tick(RUN_STOPPING), "STOPPING=1"));
    cr_expect_not(has(tick(RUN_CHECKPOINTING), "STOPPING=1"), "told twice");
    c.state.state = RUN_STOPPED;
}

Test(systemd, a_run_with_no_step_left_was_ready_and_one_that_failed_was_not)
{
    open_sink(NULL);
    c.state.state = RUN_DONE;
    end();
    cr_expect(has(heard(), "READY=1"));
    cr_assert_eq(systemd_open(&c.job, &sink), ZD_OK);
    c.state.state = RUN_FAILED;
    end();
    const char *text = heard();
    cr_expect_not(has(text, "READY=1"));
    cr_expect(has(text, "STOPPING=1"));
}

Test(systemd, an_abstract_socket_is_found)
{
    char name[64];
    ZD_PRINT(name, "@zerod-test-%ld", (long)getpid());
    listen_at(name);
    cr_assert_eq(systemd_open(&c.job, &sink), ZD_OK);
    cr_assert(sink.close);
    step();
    cr_expect(has(heard(), "READY=1"));
}

Test(systemd, without_a_socket_nothing_is_told_and_a_dead_one_is_one_warning)
{
    cr_assert_eq(systemd_open(&c.job, &sink), ZD_OK);
    cr_expect_null(sink.close);
    setenv("NOTIFY_SOCKET", "relative", 1);
    cr_assert_eq(systemd_open(&c.job, &sink), ZD_OK);
    cr_expect_null(sink.close);
    cr_expect_eq(state_case_log_count(&c, "names no socket"), 1);
    open_sink(NULL);
    close(ear);
    ear = -1;
    for (int i = 0; i < 5; i++) {
        state_case_step(&c, 2);
        step();
        sink.take(sink.ctx, "tick", &c.state);
    }
    end();
    cr_expect_eq(state_case_log_count(&c, "cannot tell systemd"), 2);
}
