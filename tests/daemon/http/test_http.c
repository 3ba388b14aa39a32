/* Requests and replies, byte by byte. */
#include "tests/daemon/http/http_case.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct http_case c;
static char reply[REPLY_MAX];

static void start_unix(void)
{
    case_start(&c, -1);
}

static void stop(void)
{
    case_stop(&c);
}

TestSuite(http, .init = start_unix, .fini = stop, .timeout = 100);

#define HEAD     " HTTP/1.1\r\nHost: zerod\r\n"
#define GET(at)  "GET " at HEAD "\r\n"
#define LAST(at) "GET " at HEAD "Connection: close\r\n\r\n"

static void expect(const char *request, const char *wanted)
{
    case_ask(&c, request, reply);
    cr_expect(
            strstr(reply, wanted), "%.60s gives\n%s\nnot %s", request, reply,
            wanted);
}

/* Refused, and the connection is closed though the client would go on. */
static void expect_close(const char *request, size_t bytes, const char *wanted)
{
    int fd = case_connect(&c);
    send(fd, request, bytes, MSG_NOSIGNAL);
    case_read(fd, reply, sizeof reply, NULL, 30000);
    cr_expect(
            strstr(reply, wanted), "%.60s gives\n%s\nnot %s", request, reply,
            wanted);
    cr_expect(case_is_closed(fd, 30000), "%.60s keeps the connection", request);
    close(fd);
}

#define CLOSES(request, wanted)                                                \
    expect_close(request, sizeof(request) - 1, wanted)

static char *repeat(
        const char *begin, const char *each, int count, const char *end)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fputs(begin, out);
    for (int i = 0; i < count; i++)
        fputs(each, out);
    fputs(end, out);
    fclose(out);
    return text;
}

Test(http, a_request_is_answered)
{
    expect(GET("/echo?a=1&b=x%20y+z"),
           "path=/echo body=0: [a]=[1] [b]=[x y z]");
    expect(GET("/echo"), "HTTP/1.1 200 OK\r\n");
    expect(GET("/echo"), "Content-Type: application/json\r\n");
    expect("POST /echo" HEAD "Content-Length: 5\r\n\r\nhello",
           "method=POST path=/echo body=5:hello");
    expect("GET /echo" HEAD "Accept: a/b\r\nLast-Event-ID: 7\r\n\r\n",
           "accept=a/b last=7 act=1");
    expect("GET /echo HTTP/1.0\r\n\r\n", "path=/echo");
}

Test(http, the_connection_is_kept)
{
    int fd = case_connect(&c);
    for (int i = 0; i < 3; i++) {
        cr_assert(case_write(fd, GET("/echo")));
        case_read(fd, reply, sizeof reply, "act=1\n", 30000);
        cr_expect(strstr(reply, "path=/echo"));
    }
    cr_assert(case_write(fd, "POST /echo" HEAD "Content-Length: 3\r\n\r\nabc"));
    case_read(fd, reply, sizeof reply, "act=1\n", 30000);
    cr_expect(strstr(reply, "body=3:abc"));
    cr_assert(case_write(fd, GET("/echo")));
    case_read(fd, reply, sizeof reply, "act=1\n", 30000);
    cr_expect(strstr(reply, "body=0:"), "the body before it is still there");
    close(fd);
}

Test(http, requests_in_a_row_are_answered_in_order)
{
    case_ask(
            &c,
            GET("/echo?n=1") "POST /echo?n=2" HEAD
                             "Content-Length: 2\r\n\r\nab" LAST("/echo?n=3"),
            reply);
    const char *first = strstr(reply, "[n]=[1]");
    const char *second = strstr(reply, "[n]=[2]");
    const char *third = strstr(reply, "[n]=[3]");
    cr_assert(first && second && third, "%s", reply);
    cr_expect(first < second && second < third);
}

Test(http, a_slow_writer_is_understood)
{
    static const char request[] =
            "POST /echo?slow=1" HEAD "Content-Length: 5\r\n\r\nhello";
    int fd = case_connect(&c);
    for (const char *p = request; *p; p++) {
        cr_assert(send(fd, p, 1, MSG_NOSIGNAL) == 1);
        if (p - request < 40) /* the server looks between the bytes */
            cr_assert_eq(case_count(&c, "gone"), 0);
    }
    case_read(fd, reply, sizeof reply, "act=1\n", 30000);
    cr_expect(strstr(reply, "body=5:hello [slow]=[1]"), "%s", reply);
    close(fd);
}

Test(http, other_methods_are_refused)
{
    static const char *const methods[] = {"HEAD",    "PUT",     "DELETE",
                                          "OPTIONS", "CONNECT", "TRACE",
                                          "BREW",    "get"};
    char request[128];
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        snprintf(request, sizeof request, "%s /echo" HEAD "\r\n", methods[i]);
        expect_close(request, strlen(request), "HTTP/1.1 405 ");
        cr_expect(strstr(reply, "Allow: GET, POST\r\n"), "%s", reply);
    }
}

Test(http, garbage_is_refused)
{
    CLOSES("hello\r\n\r\n", "400");
    CLOSES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400");
    CLOSES("GET /echo HTTP/9.9\r\nHost: z\r\n\r\n", "HTTP/1.1 505");
    CLOSES("GET /echo HTTP/1.1\r\n\r\n", "400"); /* no Host */
    CLOSES("GET /echo HTTP/1.1\r\nHost z\r\n\r\n", "400");
    CLOSES("GET  /a b" HEAD "\r\n", "400");
    CLOSES("GET echo" HEAD "\r\n", "400");
    CLOSES("GET *" HEAD "\r\n", "400");
    CLOSES("GET http://zerod" HEAD "\r\n", "400");
    char *many = repeat("GET /echo?a", "&a=1", 16, HEAD "\r\n");
    expect_close(many, strlen(many), "more than 16 parameters");
    free(many);
}

Test(http, garbage_after_a_request_is_refused)
{
    CLOSES(GET("/echo") "hello\r\n\r\n", "act=1\nHTTP/1.1 400 ");
    int fd = case_connect(&c);
    case_write(fd, LAST("/echo"));
    case_read(fd, reply, sizeof reply, NULL, 30000);
    cr_expect(!strstr(reply, "400"), "%s", reply);
    close(fd);
    case_ask(&c, GET("/echo"), reply);
    cr_expect(!strstr(reply, "400"), "%s", reply);
}

Test(http, refusals_have_the_form_of_all_errors)
{
    CLOSES("GET *" HEAD "\r\n",
           "{\"error\":{\"code\":\"E_BAD_REQUEST\",\"message\":\"");
    cr_expect(strstr(reply, "\"hint\":\""), "%s", reply);
    cr_expect(strstr(reply, "Content-Type: application/json\r\n"));
}

Test(http, bodies_need_one_length)
{
    CLOSES("POST /echo" HEAD "Transfer-Encoding: chunked\r\n\r\n"
           "5\r\nhello\r\n0\r\n\r\n",
           "400");
    CLOSES("POST /echo" HEAD "Transfer-Encoding: gzip\r\n\r\nhello", "400");
    CLOSES("POST /echo" HEAD "Transfer-Encoding: chunked\r\n"
           "Content-Length: 5\r\n\r\nhello",
           "400");
    CLOSES("POST /echo" HEAD "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"
           "hello",
           "400");
    CLOSES("POST /echo" HEAD "Content-Length: five\r\n\r\nhello", "400");
    CLOSES("POST /echo" HEAD "Content-Length: -5\r\n\r\nhello", "400");
    CLOSES("POST /echo" HEAD "Content-Length: 5x\r\n\r\nhello", "400");
    CLOSES("POST /echo" HEAD "Content-Length: 99999999999999999999\r\n\r\n",
           "413");
}

Test(http, bodies_are_limited)
{
    const char *each = "0123456789abcdef"; /* 16 bytes */
    char *fits = repeat(
            "POST /echo" HEAD "Content-Length: 65536\r\n\r\n", each, 4096, "");
    char *over = repeat(
            "POST /echo" HEAD "Content-Length: 65537\r\n\r\n", each, 4096, "x");
    expect(fits, "body=65536:0123456789");
    expect(over, "HTTP/1.1 413 ");
    cr_expect(strstr(reply, "E_TOO_LARGE"));
    free(fits);
    free(over);
    /* So large that the server does not wait for it. */
    CLOSES("POST /echo" HEAD "Content-Length: 1048577\r\n\r\nabc", "413");
    CLOSES("POST /echo" HEAD "Content-Length: 18446744073709551615\r\n\r\nabc",
           "413");
}

Test(http, headers_are_limited)
{
    char *fits = repeat("GET /echo" HEAD "X: ", "0123456789", 800, "\r\n\r\n");
    char *over = repeat("GET /echo" HEAD "X: ", "0123456789", 820, "\r\n\r\n");
    char *many = repeat("GET /echo" HEAD, "A: 1\r\n", 1400, "\r\n");
    char *huge = repeat("GET /echo" HEAD "X: ", "0123456789", 9000, "\r\n\r\n");
    char *line = repeat("GET /", "0123456789", 820, HEAD "\r\n");
    char *longer = repeat("GET /", "0123456789", 9000, HEAD "\r\n");
    expect_close(over, strlen(over), "HTTP/1.1 431 ");
    cr_expect(strstr(reply, "E_TOO_LARGE"));
    expect_close(many, strlen(many), "HTTP/1.1 431 ");
    expect_close(huge, strlen(huge), "HTTP/1.1 431 ");
    expect_close(line, strlen(line), "HTTP/1.1 431 ");
    expect_close(longer, strlen(longer), "HTTP/1.1 414 ");
    expect(fits, "path=/echo");
    free(fits), free(over), free(many), free(huge), free(line), free(longer);
}

Test(http, a_large_answer_arrives_whole)
{
    static char big[(3 << 20) + 4096];
    int fd = case_connect(&c);
    cr_assert(case_write(fd, LAST("/big?bytes=3145728")));
    size_t bytes = case_read(fd, big, sizeof big, NULL, 30000);
    const char *body = strstr(big, "\r\n\r\n");
    cr_assert(body);
    cr_expect_eq(bytes - (size_t)(body + 4 - big), 3u << 20);
    close(fd);
}

Test(http, who_has_sent_all_may_close_his_half)
{
    expect(GET("/echo"), "path=/echo"); /* case_ask does */
    int fd = case_connect(&c);
    case_write(fd, GET("/later"));
    shutdown(fd, SHUT_WR);
    while (case_count(&c, "streams") != 1)
        ;
    cr_expect(!case_is_closed(fd, 50));
    expect("POST /finish" HEAD "\r\n", "path=/finish");
    case_read(fd, reply, sizeof reply, NULL, 30000);
    cr_expect(strstr(reply, "{\"done\": true}"), "%s", reply);
    cr_expect_eq(case_count(&c, "gone"), 0);
    close(fd);
}

/* --- TCP ------------------------------------------------------------------ */

static char *ask_tcp(const char *request)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)c.tcp_port),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(!connect(fd, (struct sockaddr *)&address, sizeof address));
    case_write(fd, request);
    case_read(fd, reply, sizeof reply, NULL, 30000);
    close(fd);
    return reply;
}

static void start_tcp(void)
{
    case_start_tcp(&c);
}

TestSuite(http_tcp, .init = start_tcp, .fini = stop, .timeout = 100);

Test(http_tcp, one_path_is_answered)
{
    static const struct {
        const char *request, *answer;
    } rows[] = {
            {LAST("/metrics"), "path=/metrics body=0: accept=- last=- act=0"},
            {LAST("/v1/status"), " 404 "},
            {LAST("/metrics/"), " 404 "},
            {LAST("/"), " 404 "},
            {"POST /metrics" HEAD "Connection: close\r\n\r\n", " 405 "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect(
                strstr(ask_tcp(rows[i].request), rows[i].answer), "%.30s: %s",
                rows[i].request, reply);
}

Test(http_tcp, requests_name_this_host)
{
    static const struct {
        const char *hosts; /* lines */
        bool is_ours;
    } rows[] = {
            {"Host: 127.0.0.1:9479\r\n", true},
            {"Host: [::1]:9479\r\n", true},
            {"Host: node1:9479\r\n", true}, /* no dot: no one can register it */
            {"Host: evil.example:9479\r\n", false},
            {"Host: 127.0.0.1.evil.example\r\n", false},
            {"Host: \r\n", false},
            {"Host: node1\r\nHost: evil.example\r\n", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[200];
        snprintf(
                text, sizeof text,
                "GET /metrics HTTP/1.1\r\n%sConnection: close\r\n\r\n",
                rows[i].hosts);
        cr_expect_eq(
                !!strstr(ask_tcp(text), "path=/metrics"), rows[i].is_ours, "%s",
                rows[i].hosts);
    }
}

/* Refused before anything is bound, so that a server may be asked in a row. */
Test(http_tcp, addresses_are_checked)
{
    static const char *const wrong[] = {
            "",
            ":",
            "9479",
            ":9479",
            "localhost:",
            "localhost:123456",
            "::1:9479",
            "elsewhere:9479",
            "192.0.2.1:9479"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool is_elsewhere = strstr(wrong[i], "192.") != NULL;
        cr_expect_eq(
                http_listen_tcp(c.server, wrong[i], "/m"),
                is_elsewhere ? ZD_ERR_CREATE : ZD_ERR_CONFIG, "%s", wrong[i]);
        cr_expect_str_eq(
                zd_error_get()->code, is_elsewhere ? "E1046" : "E1045");
        zd_error_clear();
    }
}
