/* zerodctl top on a terminal of its own (a pty), against the stub: what it
 * draws, its keys, and that the terminal is given back however it ends.
 * Run from the repository's root; ZERODCTL names the program. */
#include "tests/daemon/ctl/stub.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX = 1 << 20, WAIT_MS = 60000 };

static char folder[] = "/tmp/zerod-top-XXXXXX";
static char path[64];
static struct stub *stub;

struct session {
    pid_t pid;
    int fd;
    char *output;
    size_t bytes;
};

static void start_stub(void)
{
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/job.sock", folder);
    stub = stub_start(path, "tests/daemon/ctl/answers", STUB_PLAIN);
    cr_assert(stub);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("TZ", "UTC", 1);
    unsetenv("NO_COLOR");
}

static void stop_stub(void)
{
    if (stub)
        stub_stop(stub);
    rmdir(folder);
}

TestSuite(ctl_top, .init = start_stub, .fini = stop_stub);

static struct session begin(int columns, int rows)
{
    struct winsize size = {
            .ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    struct session session = {.output = calloc(1, OUTPUT_MAX)};
    const char *program = getenv("ZERODCTL");
    cr_assert(program && session.output);
    session.pid = forkpty(&session.fd, NULL, NULL, &size);
    if (session.pid == 0) {
        execl(program, program, "top", "-S", path, "-i", "0.1s", (char *)NULL);
        _exit(127);
    }
    return session;
}

/* False: nothing more comes. */
static bool read_more(struct session *session)
{
    struct pollfd ready = {session->fd, POLLIN, 0};
    cr_assert(poll(&ready, 1, WAIT_MS) > 0, "nothing came");
    cr_assert(session->bytes < OUTPUT_MAX - 1);
    ssize_t n =
            read(session->fd, session->output + session->bytes,
                 OUTPUT_MAX - 1 - session->bytes);
    if (n <= 0)
        return false;
    session->bytes += (size_t)n;
    session->output[session->bytes] = '\0';
    return true;
}

/* Wait until `text` comes after what was there; returns where. */
static const char *expect(struct session *session, const char *text)
{
    size_t from = session->bytes;
    const char *found;
    while (!(found = strstr(session->output + from, text)))
        cr_assert(
                read_more(session), "it ended without %s:\n%s", text,
                session->output);
    return found;
}

static int end(struct session *session)
{
    int status;
    while (read_more(session))
        ;
    cr_assert_eq(waitpid(session->pid, &status, 0), session->pid);
    return status;
}

static void check_given_back(struct session *session)
{
    static const char leave[] = "\033[?7h\033[?25h\033[0m\033[?1049l";
    struct termios now;
    cr_assert(strstr(session->output, leave), "%s", session->output);
    cr_assert_eq(tcgetattr(session->fd, &now), 0);
    cr_assert(now.c_lflag & ICANON);
    cr_assert(now.c_lflag & ECHO);
    close(session->fd);
    free(session->output);
}

Test(ctl_top, q_leaves_and_gives_the_terminal_back)
{
    struct session session = begin(80, 24);
    struct termios now;
    expect(&session, "q quit");
    cr_assert_eq(tcgetattr(session.fd, &now), 0);
    cr_assert(!(now.c_lflag & ICANON));
    cr_assert_eq(write(session.fd, "q", 1), 1);
    cr_assert_eq(end(&session), 0);
    cr_assert(strstr(session.output, "quickstart"));
    check_given_back(&session);
}

Test(ctl_top, signals_give_the_terminal_back)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGSEGV};
    for (size_t i = 0; i < 4; i++) {
        struct session session = begin(80, 24);
        expect(&session, "q quit");
        kill(session.pid, numbers[i]);
        int status = end(&session);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
        check_given_back(&session);
    }
}

Test(ctl_top, keys_give_commands_that_do_not_wait)
{
    static const char *const keys[] = {"p", "r", "c", "e"};
    static const char *const commands[] = {
            "pause: at the next", "resume: at the next",
            "checkpoint: at the next", "eval: at the next"};
    struct session session = begin(80, 24);
    expect(&session, "q quit");
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(write(session.fd, keys[i], 1), 1);
        expect(&session, commands[i]);
        cr_assert_str_eq(stub_last_body(stub), "{\"wait\":false}");
    }
    cr_assert_eq(write(session.fd, "xq", 2), 2);
    cr_assert_eq(end(&session), 0);
    check_given_back(&session);
}

/* Columns of the widest line of a frame, escape codes and UTF-8's other bytes
 * left out. */
static int widest(const char *frame)
{
    int most = 0, width = 0;
    for (const char *at = frame; *at; at++) {
        if (strncmp(at, "\033[J", 3) == 0)
            break;
        if (*at == '\033') {
            at += strcspn(at, "mKHJhl");
        } else if (*at == '\n') {
            width = 0;
        } else if (*at != '\r' && ((unsigned char)*at & 0xc0) != 0x80) {
            width++;
            most = width > most ? width : most;
        }
    }
    return most;
}

Test(ctl_top, a_window_that_changes_its_size_is_filled_again)
{
    struct session session = begin(120, 40);
    struct winsize size = {.ws_col = 44, .ws_row = 20};
    cr_assert(expect(&session, "q quit   p pause"));
    cr_assert_eq(ioctl(session.fd, TIOCSWINSZ, &size), 0);
    expect(&session, "q quit p pause"); /* the short one */
    const char *frame = expect(&session, "\033[H");
    expect(&session, "\033[J");
    cr_assert(widest(frame) <= 44, "%d columns", widest(frame));
    cr_assert_eq(write(session.fd, "q", 1), 1);
    cr_assert_eq(end(&session), 0);
    check_given_back(&session);
}

Test(ctl_top, the_end_of_the_job_is_the_end_of_top)
{
    struct session session = begin(80, 24);
    expect(&session, "q quit");
    stub_stop(stub);
    stub = NULL;
    cr_assert_eq(end(&session), 0);
    cr_assert(strstr(session.output, "the job has ended"));
    check_given_back(&session);
}

Test(ctl_top, a_terminal_that_goes_away_ends_it)
{
    struct session session = begin(80, 24);
    int status;
    expect(&session, "q quit");
    close(session.fd);
    cr_assert_eq(waitpid(session.pid, &status, 0), session.pid);
    free(session.output);
}
