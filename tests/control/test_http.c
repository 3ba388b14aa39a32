/* Requests and replies, byte by byte. */
#include "tests/control/http_case.h"

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

TestSuite(http, .init = start, .fini = stop, .timeout = 60);

#define HEAD    " HTTP/1.1\r\nHost: zerod\r\n"
#define GET(at) "GET " at HEAD "\r\n"

static void expect(const char *request, const char *wanted)
{
    case_ask(&c, request, reply);
    cr_expect(
            strstr(reply, wanted), "%.60s gives\n%s\nnot %s", request, reply,
            wanted);
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
}

Test(http, the_connection_is_kept)
{
    int fd = case_connect(&c);
    for (int i = 0; i < 3; i++) {
        cr_assert(case_write(fd, GET("/echo")));
        case_read(fd, reply, sizeof reply, "act=1\n", 5000);
        cr_expect(strstr(reply, "path=/echo"));
    }
    close(fd);
}

Test(http, requests_may_come_in_a_row)
{
    case_ask(&c, GET("/echo?n=1") GET("/later") GET("/echo?n=2"), reply);
    cr_expect(strstr(reply, "[n]=[1]"));
}
