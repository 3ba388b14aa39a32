/* control_flood.c - the three sides of the flood of control_flood.sh:
 *
 *   control_flood flood SOCKET SECONDS RATE   the attacker
 *   control_flood probe SOCKET SECONDS        the owner: a status every 20 ms
 *   control_flood idler SOCKET                a server that only accepts
 *
 * As far as the server allows, the flood keeps 500 clients that write a byte
 * now and then and 500 that request much and never read. It also opens
 * connections that send nothing, garbage, or too much. RATE limits new
 * connections per second, so that the flood costs the same for every server.
 * The idler holds 16 connections and closes the oldest, as zerod does. */
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOW = 500,
    DEAF = 500,
    OTHERS = 64,
    CLIENTS = SLOW + DEAF + OTHERS,
    IDLER_MAX = 16,
    SAMPLES_MAX = 1 << 16,
    PROBE_MS = 20,
    REPLY_MAX = 64 << 10
};

static int die(const char *what)
{
    perror(what);
    exit(74);
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static int connect_to(const char *path, int flags)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void sleep_until(double when)
{
    double left = when - clock_seconds();
    if (left <= 0)
        return;
    struct timespec time = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
    nanosleep(&time, NULL);
}

/* --- flood ---------------------------------------------------------------- */

static const char slow_text[] =
        "POST /v1/set HTTP/1.1\r\nHost: z\r\nContent-Length: 65000\r\n\r\n{";
static const char *const deaf_texts[] = {
        "GET /v1/events HTTP/1.1\r\nHost: z\r\n\r\n",
        "GET /v1/metrics/history HTTP/1.1\r\nHost: z\r\n\r\n",
};

struct flood {
    const char *path;
    int epoll_fd;
    int fds[CLIENTS]; /* -1: closed */
    unsigned short written[CLIENTS];
    long opened, refused, next;
    char much[128 << 10]; /* oversize: a header, or a body */
};

static void put(int fd, const void *data, size_t bytes)
{
    if (send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
        errno != EAGAIN && errno != EPIPE && errno != ECONNRESET)
        die("send");
}

/* What a new client sends. */
static void speak(struct flood *f, int i)
{
    int fd = f->fds[i];
    f->written[i] = 0;
    if (i < SLOW)
        return;
    if (i < SLOW + DEAF) {
        for (int k = 0; k < 8; k++) { /* pipelined: more than a buffer holds */
            const char *text = deaf_texts[(i + k) % 2];
            put(fd, text, strlen(text));
        }
        return;
    }
    switch (f->opened % 4) {
    case 0:
        put(fd, "\x16\x03\x01 nothing of HTTP\r\n\r\n", 24);
        break;
    case 1:
        put(fd, "GET /v1/status HTTP/1.1\r\nX: ", 28);
        put(fd, f->much, 20 << 10);
        break;
    case 2:
        put(fd,
            "POST /v1/set HTTP/1.1\r\nHost: z\r\nContent-Length: "
            "131072\r\n\r\n",
            58);
        put(fd, f->much, sizeof f->much);
        break;
    default:
        break; /* nothing at all */
    }
}

static void open_client(struct flood *f, int i)
{
    if (f->fds[i] >= 0)
        close(f->fds[i]);
    f->fds[i] = connect_to(f->path, SOCK_NONBLOCK);
    f->opened++;
    if (f->fds[i] < 0) {
        f->refused++;
        return;
    }
    struct epoll_event event = {.events = 0, .data.u32 = (unsigned)i};
    epoll_ctl(f->epoll_fd, EPOLL_CTL_ADD, f->fds[i], &event);
    speak(f, i);
}

/* Forgets closed connections; clients that never read would not notice. */
static void forget_closed(struct flood *f)
{
    struct epoll_event ready[256];
    int count = epoll_wait(f->epoll_fd, ready, 256, 0);
    for (int i = 0; i < count; i++) {
        int *fd = &f->fds[ready[i].data.u32];
        if (*fd >= 0 && ready[i].events & (EPOLLHUP | EPOLLERR)) {
            close(*fd);
            *fd = -1;
        }
    }
}

/* Every fourth connection is one of the others; the rest fill the 1000. */
static int choose(struct flood *f)
{
    if (f->opened % 4 == 0)
        return SLOW + DEAF + (int)(f->opened / 4 % OTHERS);
    for (int tries = 0; tries < 8; tries++) {
        int i = (int)(f->next++ % (SLOW + DEAF));
        if (f->fds[i] < 0)
            return i;
    }
    return (int)(f->next % (SLOW + DEAF));
}

static void write_slowly(struct flood *f)
{
    for (int i = 0; i < SLOW; i++)
        if (f->fds[i] >= 0 && f->written[i] + 1u < sizeof slow_text)
            put(f->fds[i], slow_text + f->written[i]++, 1);
}

static int flood(const char *path, double seconds, double rate)
{
    static struct flood f;
    f.path = path;
    f.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    memset(f.much, 'x', sizeof f.much);
    for (int i = 0; i < CLIENTS; i++)
        f.fds[i] = -1;
    double begin = clock_seconds(), slow_at = begin;
    for (double now = begin; now < begin + seconds; now = clock_seconds()) {
        forget_closed(&f);
        while ((double)f.opened < rate * (now - begin)) {
            open_client(&f, choose(&f));
            if (f.opened % 64 == 0)
                forget_closed(&f);
        }
        if (now >= slow_at) {
            write_slowly(&f);
            slow_at = now + 0.1;
        }
        sleep_until(now + 0.002);
    }
    int open = 0;
    for (int i = 0; i < CLIENTS; i++)
        open += f.fds[i] >= 0;
    printf("%ld connections, %ld refused, %d open at the end\n", f.opened,
           f.refused, open);
    return 0;
}

/* --- probe ---------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Requests one status on a new connection; false: no answer within 5 s. */
static bool ask_status(const char *path)
{
    static const char request[] =
            "GET /v1/status HTTP/1.1\r\nHost: z\r\nConnection: close\r\n\r\n";
    static char reply[REPLY_MAX];
    size_t bytes = 0;
    int fd = connect_to(path, 0);
    if (fd < 0)
        return false;
    put(fd, request, sizeof request - 1);
    while (bytes + 1 < sizeof reply) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        ssize_t more = -1;
        if (poll(&poll_fd, 1, 5000) == 1)
            more = recv(fd, reply + bytes, sizeof reply - 1 - bytes, 0);
        if (more <= 0)
            break;
        bytes += (size_t)more;
    }
    close(fd);
    reply[bytes] = '\0';
    return strstr(reply, " 200 OK") && strstr(reply, "\"step\"");
}

static int probe(const char *path, double seconds)
{
    static double took[SAMPLES_MAX];
    int count = 0, failed = 0;
    double begin = clock_seconds(), next = begin;
    while (next < begin + seconds && count < SAMPLES_MAX) {
        sleep_until(next);
        double start = clock_seconds();
        failed += !ask_status(path);
        took[count++] = clock_seconds() - start;
        next += PROBE_MS * 1e-3;
        if (next < clock_seconds())
            next = clock_seconds();
    }
    qsort(took, (size_t)count, sizeof *took, compare);
    printf("%d asked, %d failed, p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
           count, failed, 1e3 * took[count / 2],
           1e3 * took[(int)(count * 0.99)], 1e3 * took[count - 1]);
    return failed > 0;
}

/* --- idler ---------------------------------------------------------------- */

static _Noreturn void idler(const char *path)
{
    struct sockaddr_un address = address_of(path);
    int held[IDLER_MAX], at = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(held, -1, sizeof held);
    unlink(path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) ||
        listen(fd, 1024))
        die(path);
    for (;;) {
        int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (client < 0)
            continue;
        if (held[at] >= 0)
            close(held[at]);
        held[at] = client;
        at = (at + 1) % IDLER_MAX;
    }
}

int main(int count, char **args)
{
    if (count == 5 && !strcmp(args[1], "flood"))
        return flood(args[2], atof(args[3]), atof(args[4]));
    if (count == 4 && !strcmp(args[1], "probe"))
        return probe(args[2], atof(args[3]));
    if (count == 3 && !strcmp(args[1], "idler"))
        idler(args[2]);
    fprintf(stderr, "control_flood flood SOCKET SECONDS RATE | probe SOCKET "
                    "SECONDS | idler SOCKET\n");
    return 64;
}
