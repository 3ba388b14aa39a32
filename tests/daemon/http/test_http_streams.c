/* Answers that come later, streams, and clients that leave or do not read. */
#include "tests/daemon/http/http_case.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct http_case c;
static char reply[REPLY_MAX];

static void start(void)
{
    case_start(&c, -1);
}

static void stop(void)
{
    case_stop(&c);
}

TestSuite(http_streams, .init = start, .fini = stop, .timeout = 100);

#define GET(at)  "GET " at " HTTP/1.1\r\nHost: zerod\r\n\r\n"
#define POST(at) "POST " at " HTTP/1.1\r\nHost: zerod\r\n\r\n"

static int open_at(const char *request, const char *until)
{
    int fd = case_connect(&c);
    cr_assert(case_write(fd, request));
    if (until) {
        case_read(fd, reply, sizeof reply, until, 30000);
        cr_assert(strstr(reply, until), "%s", reply);
    }
    return fd;
}

/* Until the handler has seen so many. */
static void wait_count(const char *name, int count)
{
    for (int i = 0; i < 5000 && case_count(&c, name) != count; i++)
        usleep(1000);
    cr_expect_eq(case_count(&c, name), count);
}

Test(http_streams, bytes_arrive_as_they_are_sent)
{
    int fd = open_at(GET("/stream"), "hello\n");
    cr_expect(strstr(reply, "Content-Type: text/plain\r\n"));
    case_ask(&c, POST("/tell"), reply);
    case_read(fd, reply, sizeof reply, "more\n", 30000);
    cr_expect(strstr(reply, "more\n"));
    cr_expect(!case_is_closed(fd, 50));
    case_ask(&c, POST("/finish"), reply);
    case_read(fd, reply, sizeof reply, "0\r\n\r\n", 30000);
    cr_expect(strstr(reply, "0\r\n\r\n"), "no end of the chunks: %s", reply);
    cr_expect_eq(case_count(&c, "gone"), 0);
    close(fd);
}

Test(http_streams, http_1_0_gets_no_chunks)
{
    int fd = open_at("GET /stream HTTP/1.0\r\n\r\n", "\r\n\r\nhello\n");
    case_ask(&c, POST("/finish"), reply);
    cr_expect(case_is_closed(fd, 30000));
    close(fd);
}

Test(http_streams, an_answer_that_came_late_has_a_length)
{
    int fd = open_at(GET("/later"), NULL);
    wait_count("streams", 1);
    case_ask(&c, POST("/finish"), reply);
    case_read(fd, reply, sizeof reply, "true}", 30000);
    cr_expect(strstr(reply, "Content-Length: 14\r\n"), "%s", reply);
    cr_expect(case_write(fd, GET("/echo?again")));
    case_read(fd, reply, sizeof reply, "[again]", 30000);
    cr_expect(strstr(reply, "[again]"), "the connection was not kept");
    close(fd);
}

Test(http_streams, who_leaves_is_told_once)
{
    int stream = open_at(GET("/stream"), "hello\n");
    int later = open_at(GET("/later"), NULL);
    wait_count("streams", 2);
    close(stream);
    wait_count("gone", 1);
    close(later);
    wait_count("gone", 2);
    case_ask(&c, POST("/tell"), reply);
    case_ask(&c, POST("/finish"), reply);
    cr_expect_eq(case_count(&c, "gone"), 2);
}

Test(http_streams, who_does_not_read_is_dropped_at_1_MiB)
{
    int fd = open_at(GET("/pour"), NULL);
    wait_count("failed", 1);
    cr_expect_eq(case_count(&c, "gone"), 1);
    cr_expect(case_is_closed(fd, 30000));
    close(fd);
}

Test(http_streams, who_reads_is_not_dropped)
{
    int fd = open_at(GET("/pour"), NULL);
    size_t bytes = 0;
    while (bytes < 8 << 20) { /* eight times what may wait */
        ssize_t result = recv(fd, reply, sizeof reply, 0);
        cr_assert_gt(result, 0);
        bytes += (size_t)result;
    }
    cr_expect_eq(case_count(&c, "failed"), 0);
    close(fd);
    wait_count("gone", 1);
}

Test(http_streams, requests_after_a_stream_wait)
{
    int fd = open_at(GET("/later") GET("/echo?n=2"), NULL);
    wait_count("streams", 1);
    cr_expect(!case_is_closed(fd, 50));
    case_ask(&c, POST("/finish"), reply);
    case_read(fd, reply, sizeof reply, "[n]=[2]", 30000);
    cr_expect(strstr(reply, "true}"));
    cr_expect(strstr(reply, "[n]=[2]"), "%s", reply);
    close(fd);
}

/* The end comes with everything open: no handle, descriptor or byte is left
 * (case_stop closes the loop; a leak is the sanitizer's). */
Test(http_streams, the_end_closes_all)
{
    int fds[8];
    for (int i = 0; i < 8; i++)
        fds[i] =
                open_at(i % 2 ? GET("/stream") : GET("/later"),
                        i % 2 ? "hello\n" : NULL);
    wait_count("streams", 8);
    case_stop(&c);
    cr_expect_eq(c.gone_count, 8);
    for (int i = 0; i < 8; i++) {
        cr_expect(case_is_closed(fds[i], 30000));
        close(fds[i]);
    }
    case_start(&c, -1);
}

/* A client that reads slowly gets what was answered before the end. */
static void *stop_case(void *ctx)
{
    case_stop(ctx);
    return NULL;
}

Test(http_streams, the_end_waits_for_what_was_answered)
{
    static char big[(2 << 20) + 4096];
    pthread_t thread;
    c.drain_seconds = 10;
    int fd = open_at(GET("/big?bytes=2097152"), "\r\n\r\n");
    size_t head = (size_t)(strstr(reply, "\r\n\r\n") + 4 - reply);
    size_t have = strlen(reply) - head;
    pthread_create(&thread, NULL, stop_case, &c);
    size_t bytes = case_read(fd, big, sizeof big, NULL, 30000);
    cr_expect_eq(have + bytes, 2u << 20);
    close(fd);
    pthread_join(thread, NULL);
    case_start(&c, -1);
}
