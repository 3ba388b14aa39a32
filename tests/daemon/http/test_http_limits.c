/* Who may come in, how many, how long, and with how few descriptors. */
#include "tests/daemon/http/http_case.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct http_case c;
static char reply[REPLY_MAX];

static void stop(void)
{
    case_stop(&c);
}

TestSuite(http_limits, .fini = stop, .timeout = 100);

#define GET(at)  "GET " at " HTTP/1.1\r\nHost: zerod\r\n\r\n"
#define POST(at) "POST " at " HTTP/1.1\r\nHost: zerod\r\n\r\n"

enum { STRANGER = 65534, GROUP = 54321, LONG_MS = 30000 };

static int count_descriptors(void)
{
    int count = -3; /* ., .. and the folder's own */
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* `ms`: between the connection and its request. */
static bool is_answered_after(int ms)
{
    int fd = case_connect(&c);
    reply[0] = '\0';
    usleep(1000 * (useconds_t)ms);
    if (case_write(fd, GET("/echo?fresh")))
        case_read(fd, reply, sizeof reply, "act=1\n", LONG_MS);
    close(fd);
    return strstr(reply, "[fresh]") != NULL;
}

static bool is_answered(void)
{
    return is_answered_after(0);
}

static void wait_gone(int count)
{
    for (int i = 0; i < 5000 && case_count(&c, "gone") < count; i++)
        usleep(1000);
}

/* Connections [from, to), each a moment older than the next; with a request,
 * its answer was read up to `until`. */
static void open_many(
        int *fds, int from, int to, const char *request, const char *until)
{
    for (int i = from; i < to; i++) {
        fds[i] = case_connect(&c);
        cr_assert_geq(fds[i], 0);
        if (request)
            case_write(fds[i], request);
        if (until)
            case_read(fds[i], reply, sizeof reply, until, LONG_MS);
        cr_assert(!until || strstr(reply, until), "%d gets no answer", i);
        usleep(1000);
    }
}

static void expect_closed(const int *fds, int from, int to)
{
    for (int i = from; i < to; i++)
        cr_expect(case_is_closed(fds[i], LONG_MS), "%d is still there", i);
}

static void expect_open(const int *fds, int from, int to)
{
    for (int i = from; i < to; i++)
        cr_expect(!case_is_closed(fds[i], 5), "%d has gone", i);
}

static void close_many(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* --- how many ------------------------------------------------------------- */

Test(http_limits, the_longest_idle_goes_first)
{
    int fds[20];
    case_start(&c, -1);
    open_many(fds, 0, 20, NULL, NULL);
    expect_closed(fds, 0, 4);
    expect_open(fds, 4, 20);
    cr_expect(is_answered());
    close_many(fds, 20);
}

/* A whole request does, half of one does not. */
Test(http_limits, a_request_makes_young)
{
    static const struct {
        const char *request, *until;
        int goes; /* when one more comes */
    } cases[] = {
            {GET("/echo?kept"), "[kept]", 1},
            {"GET /echo HTTP/1.1\r\nHo", NULL, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fds[17], goes = cases[i].goes;
        case_start(&c, -1);
        open_many(fds, 0, 16, NULL, NULL);
        usleep(2000 * HTTP_GRACE_MS);
        cr_assert(case_write(fds[0], cases[i].request));
        if (cases[i].until)
            case_read(fds[0], reply, sizeof reply, cases[i].until, LONG_MS);
        open_many(fds, 16, 17, NULL, NULL);
        expect_closed(fds, goes, goes + 1);
        expect_open(fds, 0, goes);
        expect_open(fds, goes + 1, 17);
        close_many(fds, 17);
        if (i == 0)
            case_stop(&c);
    }
}

Test(http_limits, streams_stay_while_others_are_idle)
{
    int streams[10], idle[10];
    case_start(&c, -1);
    open_many(streams, 0, 10, GET("/stream"), "hello\n");
    open_many(idle, 0, 10, NULL, NULL);
    expect_closed(idle, 0, 4);
    cr_expect(is_answered());
    cr_expect_eq(case_count(&c, "gone"), 0);
    close_many(streams, 10);
    close_many(idle, 10);
}

/* When all are streams the oldest goes; a command that waits, after them. */
Test(http_limits, the_oldest_stream_goes_when_all_are_streams)
{
    int fds[24];
    case_start(&c, -1);
    open_many(fds, 0, 1, GET("/later"), NULL);
    while (case_count(&c, "streams") != 1)
        ;
    open_many(fds, 1, 24, GET("/stream"), "hello\n");
    wait_gone(8);
    expect_closed(fds, 1, 8);
    expect_open(fds, 0, 1); /* the command */
    expect_open(fds, 23, 24);
    cr_expect(is_answered());
    close_many(fds, 24);
}

/* The flood is another process of the owner's: connections that say nothing, as
 * fast as they can be made. */
static pid_t start_flood(int rounds, int at_once)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    int fds[512] = {0};
    for (int i = 0; i < rounds; i++) {
        int *fd = &fds[i % at_once];
        if (*fd > 0)
            close(*fd);
        *fd = case_connect(&c);
    }
    _exit(0);
}

/* Also one that comes after the first moments of its connection. */
Test(http_limits, a_process_with_one_connection_keeps_it_in_a_flood)
{
    case_start(&c, -1);
    pid_t flood = start_flood(1 << 30, 300);
    int answered = 0;
    for (int i = 0; i < 100; i++)
        answered += is_answered_after(i % 10 ? 0 : 5 * HTTP_GRACE_MS);
    kill(flood, SIGKILL);
    waitpid(flood, NULL, 0);
    cr_expect_geq(answered, 99, "%d of 100 were answered", answered);
}

Test(http_limits, no_descriptor_is_left_behind)
{
    case_start(&c, -1);
    cr_assert(is_answered());
    int before = count_descriptors();
    pid_t flood = start_flood(10000, 300);
    waitpid(flood, NULL, 0);
    cr_expect(is_answered()); /* those that waited before it are accepted */
    int steady = 0;
    for (int i = 0; i < 5000 && steady < 50; i++) {
        steady = count_descriptors() <= before ? steady + 1 : 0;
        usleep(1000);
    }
    cr_expect_eq(steady, 50, "%d now, %d before", count_descriptors(), before);
}

/* --- how long ------------------------------------------------------------- */

Test(http_limits, the_first_request_must_come_soon)
{
    case_start_hurried(&c, -1, 300, 60000);
    int silent = case_connect(&c);
    int half = case_connect(&c);
    int slow = case_connect(&c);
    case_write(
            half,
            "POST /echo HTTP/1.1\r\nHost: z\r\nContent-Length: 9\r\n\r\na");
    bool is_cut = false;
    for (int i = 0; i < 10000 && !is_cut; i++) { /* a byte, and a byte .. */
        is_cut = !case_write(slow, i ? "x" : "G");
        usleep(1000);
    }
    cr_expect(is_cut, "a byte now and then keeps a connection");
    cr_expect(case_is_closed(silent, LONG_MS));
    cr_expect(case_is_closed(half, LONG_MS));
    close(silent), close(half), close(slow);
}

Test(http_limits, idle_connections_end_but_no_streams)
{
    case_start_hurried(&c, -1, 0, 300);
    int idle = case_connect(&c);
    int stream = case_connect(&c);
    int later = case_connect(&c);
    case_write(stream, GET("/stream"));
    case_write(later, GET("/later"));
    case_write(idle, GET("/echo"));
    case_read(stream, reply, sizeof reply, "hello\n", LONG_MS);
    cr_expect(case_is_closed(idle, LONG_MS));
    cr_expect(!case_is_closed(stream, 600));
    cr_expect(!case_is_closed(later, 5));
    close(idle), close(stream), close(later);
}

/* --- descriptors ---------------------------------------------------------- */

/* Every descriptor of the process is taken; the client is another process. */
static int ask_with_none_left(int connections)
{
    static int taken[4096];
    int count = 0, status = 0, ready[2];
    char byte;
    struct rlimit limit = {256, 256};
    cr_assert(!pipe(ready));
    pid_t client = fork(); /* its descriptors are its own */
    if (!client) {
        int fds[64], good = 0;
        if (read(ready[0], &byte, 1) != 1)
            _exit(99);
        for (int i = 0; i < connections; i++)
            fds[i] = case_connect(&c);
        for (int i = 0; i < 10; i++)
            good += is_answered();
        for (int i = 0; i < connections; i++)
            close(fds[i]);
        _exit(good);
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    while ((taken[count] = dup(ready[0])) >= 0)
        count++;
    cr_assert(write(ready[1], "x", 1) == 1);
    waitpid(client, &status, 0);
    while (count)
        close(taken[--count]);
    close(ready[0]), close(ready[1]);
    return WEXITSTATUS(status);
}

/* Also while connections that say nothing hold all there are. */
Test(http_limits, the_owner_gets_in_without_a_descriptor)
{
    case_start(&c, -1);
    cr_expect_eq(ask_with_none_left(0), 10);
    cr_expect_eq(ask_with_none_left(12), 10);
    cr_expect(is_answered());
}

/* --- who ------------------------------------------------------------------ */

/* Fork into another user; exits with what `body` gives. */
static int as_user(uid_t uid, gid_t gid, gid_t other, int (*body)(void))
{
    int status;
    pid_t pid = fork();
    if (!pid) {
        if (setgroups(other ? 1 : 0, &other) || setresgid(gid, gid, gid) ||
            setresuid(uid, uid, uid))
            _exit(99);
        _exit(body());
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

/* The file system would stop them: we want to see the server do it. */
static void open_doors(void)
{
    char folder[80];
    snprintf(folder, sizeof folder, "%s/s", c.folder);
    chmod(c.folder, 0777);
    chmod(folder, 0777);
    chmod(c.path, 0777);
}

static int is_refused(void)
{
    int fd = case_connect(&c);
    case_write(fd, GET("/echo"));
    return case_read(fd, reply, sizeof reply, NULL, LONG_MS) == 0;
}

static int may_only_read(void)
{
    case_ask(&c, GET("/echo"), reply);
    return strstr(reply, "act=0") != NULL;
}

static int hold_twenty(void)
{
    for (int i = 0; i < 20; i++)
        if (case_connect(&c) < 0)
            return 1;
    usleep(200000);
    return 0;
}

Test(http_limits, another_user_is_refused)
{
    case_start(&c, -1);
    if (geteuid())
        cr_skip("another user can be played by root alone");
    open_doors();
    cr_expect_eq(as_user(STRANGER, STRANGER, 0, is_refused), 1);
    cr_expect(is_answered());
}

Test(http_limits, a_group_may_read)
{
    struct stat info;
    char folder[80];
    case_start(&c, geteuid() ? -1 : GROUP);
    if (geteuid())
        cr_skip("another user can be played by root alone");
    cr_expect(!stat(c.path, &info) && (info.st_mode & 0777) == 0660);
    cr_expect_eq(info.st_gid, GROUP);
    snprintf(folder, sizeof folder, "%s/s", c.folder);
    cr_expect(!stat(folder, &info) && (info.st_mode & 0777) == 0750);
    chmod(c.folder, 0755);
    cr_expect_eq(as_user(STRANGER, GROUP, 0, may_only_read), 1);
    cr_expect_eq(as_user(STRANGER, STRANGER, GROUP, may_only_read), 1);
    open_doors();
    cr_expect_eq(as_user(STRANGER, STRANGER, 0, is_refused), 1);
    case_ask(&c, GET("/echo"), reply);
    cr_expect(strstr(reply, "act=1"));
}

/* Eight readers hold what they can: 64 are open, the owner gets in. */
Test(http_limits, users_share_64)
{
    pid_t pids[8];
    case_start(&c, geteuid() ? -1 : GROUP);
    if (geteuid())
        cr_skip("other users can be played by root alone");
    chmod(c.folder, 0755);
    for (int i = 0; i < 8; i++)
        if (!(pids[i] = fork()))
            _exit(as_user(20000 + (uid_t)i, GROUP, 0, hold_twenty));
    int answered = 0;
    for (int i = 0; i < 50; i++)
        answered += is_answered();
    cr_expect_geq(answered, 49);
    for (int i = 0; i < 8; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        cr_expect_eq(WEXITSTATUS(status), 0);
    }
    cr_expect(is_answered());
}
