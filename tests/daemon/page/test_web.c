/* The relay of zerodctl web, between a client of TCP and a job that this test
 * plays. */
#include "daemon/page/web.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAIT_MS = 40000, TEXT_MAX = 1 << 18 };

static char folder[] = "/tmp/zerod-web-XXXXXX", socket_path[64];
static int job_fd, port;
static struct web *web;
static pthread_t thread;
static bool was_signalled; /* what web_serve said */
static char folder_of_page[80]; /* "/SECRET" */

/* --- a job --- */

static void job_begin(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cr_assert(mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/s", folder);
    strcpy(address.sun_path, socket_path);
    job_fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(job_fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(job_fd, 16), 0);
}

static bool readable(int fd, int wait_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, wait_ms) == 1;
}

/* The job's end of the next connection. */
static int job_accept(void)
{
    cr_assert(readable(job_fd, WAIT_MS), "the relay asks the job");
    int fd = accept(job_fd, NULL, NULL);
    cr_assert_geq(fd, 0);
    return fd;
}

static bool job_was_asked(void)
{
    return readable(job_fd, 0);
}

static void send_text(int fd, const char *text)
{
    size_t bytes = strlen(text);
    cr_assert_eq(send(fd, text, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* What arrives, until `word` is among it (NULL: until the end). */
static char *receive_until(int fd, const char *word)
{
    static char text[TEXT_MAX];
    size_t used = 0;
    text[0] = '\0';
    while (!word || !strstr(text, word)) {
        cr_assert(readable(fd, WAIT_MS), "waits for `%s`: %s", word, text);
        ssize_t got = recv(fd, text + used, sizeof text - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
    }
    cr_assert(!word || strstr(text, word), "no `%s` in: %s", word, text);
    return text;
}

/* --- a browser --- */

static int client_connect(void)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Send "METHOD TARGET" with more lines of the head ("\r\n" after each). */
static int ask(const char *what, const char *more, const char *body)
{
    char *text;
    int fd = client_connect();
    cr_assert_gt(
            asprintf(
                    &text,
                    "%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: "
                    "%zu\r\nConnection: close\r\n%s\r\n%s",
                    what, port, strlen(body), more, body),
            0);
    send_text(fd, text);
    free(text);
    return fd;
}

/* "METHOD PATH" with the path below the page's secret. */
static const char *inside(const char *what)
{
    static char text[256];
    int method = (int)strcspn(what, " ") + 1;
    snprintf(
            text, sizeof text, "%.*s%s%s", method, what, folder_of_page,
            what + method);
    return text;
}

static int status_of(const char *answer)
{
    int status = 0;
    cr_assert_eq(sscanf(answer, "HTTP/1.1 %d", &status), 1, "%s", answer);
    return status;
}

/* The status of an answer that needs no job. */
static int ask_status(const char *what, const char *more)
{
    int fd = ask(what, more, "");
    int status = status_of(receive_until(fd, NULL));
    close(fd);
    return status;
}

static void enter(void)
{
    char what[128];
    const char *query = strstr(web_address(web), "/?token=");
    snprintf(what, sizeof what, "GET %s", query);
    int fd = ask(what, "", "");
    char *answer = receive_until(fd, NULL);
    char *line = strstr(answer, "Location: /");
    cr_assert(line, "%s", answer);
    line += strlen("Location: ");
    snprintf(
            folder_of_page, sizeof folder_of_page, "%.*s",
            (int)strcspn(line + 1, "/") + 1, line);
    close(fd);
}

static void *serve(void *ctx)
{
    was_signalled = web_serve(web);
    return NULL;
}

static void begin(void)
{
    job_begin();
    cr_assert_eq(
            web_create(&(struct web_options){.socket = socket_path}, &web),
            ZD_OK);
    cr_assert_eq(
            sscanf(web_address(web), "http://127.0.0.1:%d/?token=", &port), 1);
    pthread_create(&thread, NULL, serve, NULL);
}

/* By a signal, unless it has ended. */
static void end(void)
{
    if (!web)
        return;
    kill(getpid(), SIGINT);
    pthread_join(thread, NULL);
    web_destroy(web);
    web = NULL;
    unlink(socket_path);
    rmdir(folder);
}

TestSuite(web, .init = begin, .fini = end, .timeout = 100);

/* --- tests --- */

Test(web, the_address_leads_to_the_page_once)
{
    char what[128];
    snprintf(what, sizeof what, "GET %s", strstr(web_address(web), "/?token="));
    int fd = ask(what, "", "");
    char *answer = receive_until(fd, NULL);
    cr_assert_eq(status_of(answer), 303);
    cr_assert(strstr(answer, "Location: /"));
    cr_assert_null(
            strstr(answer, "Set-Cookie"),
            "a browser would send it to every port of 127.0.0.1");
    close(fd);
    fd = ask(what, "", "");
    answer = receive_until(fd, NULL);
    cr_assert_eq(status_of(answer), 401);
    cr_assert_null(strstr(answer, "Location"));
    close(fd);
    cr_assert_not(job_was_asked());
}

Test(web, strangers_do_not_reach_the_job)
{
    enter();
    char host[64];
    static const char origin[] = "Origin: http://evil.example\r\n";
    snprintf(host, sizeof host, "Host: 127.0.0.1:%d\r\n", port);
    cr_assert_eq(ask_status("GET /v1/status", ""), 401);
    cr_assert_eq(ask_status("GET /", ""), 401);
    cr_assert_eq(ask_status("POST /v1/stop", ""), 401);
    cr_assert_eq(ask_status(inside("GET /v1/status"), origin), 403);
    cr_assert_eq(ask_status(inside("POST /v1/stop"), origin), 403);
    cr_assert_eq(ask_status(inside("GET /etc/passwd"), ""), 404);
    cr_assert_eq(ask_status(inside("GET /v1/stop"), ""), 405);
    cr_assert_eq(ask_status(inside("DELETE /v1/status"), ""), 405);
    /* a second Host header: which one counted would be a matter of taste */
    int status = ask_status(inside("GET /v1/status"), host);
    cr_assert(status == 403 || status == 400, "%d", status);
    cr_assert_not(job_was_asked());
}

Test(web, a_request_and_its_answer_go_through)
{
    enter();
    int fd =
            ask(inside("POST /v1/set"),
                "Accept: text/plain\r\nLast-Event-ID: 17\r\nX-Own: 1\r\n"
                "Cookie: a=b\r\n",
                "{\"learning_rate\": 1e-4}");
    int job = job_accept();
    char *request = receive_until(job, "1e-4}");
    cr_assert_eq(strncmp(request, "POST /v1/set HTTP/1.0\r\n", 23), 0);
    cr_assert(strstr(request, "\r\nContent-Length: 23\r\n"));
    cr_assert(strstr(request, "\r\nAccept: text/plain\r\n"));
    cr_assert(strstr(request, "\r\nLast-Event-ID: 17\r\n"));
    cr_assert_null(strstr(request, "Cookie"), "other headers stay here");
    cr_assert_null(strstr(request, "X-Own"));
    send_text(
            job,
            "HTTP/1.1 409 Conflict\r\nContent-Type: "
            "application/json\r\nContent-Length: 12\r\n\r\n{\"error\": 1}");
    close(job);
    char *answer = receive_until(fd, NULL);
    cr_assert_eq(status_of(answer), 409);
    cr_assert(strstr(answer, "{\"error\": 1}"));
    cr_assert(strstr(answer, "Content-Type: application/json\r\n"));
    cr_assert(strstr(answer, "Content-Security-Policy: default-src 'none'"));
    cr_assert(strstr(answer, "Cache-Control: no-store\r\n"));
    cr_assert_null(strstr(answer, "Access-Control"));
    close(fd);
}

Test(web, a_stream_passes_event_by_event)
{
    enter();
    int fd = ask(inside("GET /v1/events?since=3"), "", "");
    int job = job_accept();
    char *request = receive_until(job, "\r\n\r\n");
    cr_assert_eq(strncmp(request, "GET /v1/events?since=3 HTTP/1.0", 31), 0);
    send_text(
            job,
            "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    /* each is there before the next is sent */
    send_text(job, "data: one\n");
    char *answer = receive_until(fd, "data: one\n");
    cr_assert(strstr(answer, "Content-Type: text/event-stream\r\n"));
    send_text(job, "data: two\n");
    receive_until(fd, "data: two\n");
    /* the reader goes: so does the connection to the job */
    close(fd);
    receive_until(job, NULL);
    close(job);
}

Test(web, an_answer_that_breaks_off_is_not_whole_for_the_browser)
{
    enter();
    int fd = ask(inside("GET /v1/logs"), "", "");
    int job = job_accept();
    receive_until(job, "\r\n\r\n");
    send_text(job, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    receive_until(fd, "half");
    close(job);
    char *rest = receive_until(fd, NULL);
    cr_assert_null(strstr(rest, "0\r\n\r\n"), "no last chunk");
    close(fd);
}

Test(web, a_large_answer_is_the_same_on_both_sides)
{
    enum { LINES = 20000 };
    enter();
    int fd = ask(inside("GET /v1/logs"), "", "");
    int job = job_accept();
    receive_until(job, "\r\n\r\n");
    char head[128], line[16];
    snprintf(
            head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
            LINES * 8);
    send_text(job, head);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < LINES; i++) {
            snprintf(line, sizeof line, "%07d\n", i);
            send(job, line, 8, MSG_NOSIGNAL);
        }
        _exit(0);
    }
    close(job);
    char *text = receive_until(fd, NULL);
    /* chunk heads stand between: take digits-and-newline lines of 7 */
    int found = 0;
    char *body = strstr(text, "\r\n\r\n") + 4;
    char *out = body;
    for (char *at = body; *at;) {
        char *data;
        size_t bytes = strtoul(at, &data, 16);
        cr_assert_eq(strncmp(data, "\r\n", 2), 0);
        memmove(out, data + 2, bytes);
        out += bytes;
        at = data + 2 + bytes + 2;
        if (!bytes)
            break;
    }
    *out = '\0';
    for (char *at = body; at < out; at += 8, found++)
        cr_assert_eq(atoi(at), found);
    cr_assert_eq(found, LINES);
    close(fd);
}

Test(web, a_body_above_64_kib_is_refused)
{
    enter();
    char *body = malloc(65538);
    memset(body, 'a', 65537);
    body[65537] = '\0';
    int fd = ask(inside("POST /v1/set"), "", body);
    cr_assert_eq(status_of(receive_until(fd, NULL)), 413);
    cr_assert_not(job_was_asked());
    close(fd);
    free(body);
}

Test(web, a_job_that_is_gone_is_told_and_ends_it)
{
    enter();
    close(job_fd);
    unlink(socket_path);
    int fd = ask(inside("GET /v1/status"), "", "");
    char *answer = receive_until(fd, NULL);
    cr_assert_eq(status_of(answer), 503);
    cr_assert(strstr(answer, "\"E_ENDING\""));
    close(fd);
    pthread_join(thread, NULL);
    cr_assert_not(was_signalled);
    web_destroy(web);
    web = NULL;
}

Test(web, a_signal_ends_it_and_open_streams)
{
    enter();
    int fd = ask(inside("GET /v1/events"), "", "");
    int job = job_accept();
    receive_until(job, "\r\n\r\n");
    end(); /* while the job says nothing */
    cr_assert(was_signalled);
    receive_until(fd, NULL);
    close(fd);
    close(job);
}

Test(web, idle_connections_of_others_do_not_keep_the_owner_out)
{
    enum { OTHERS = 80 };
    int others[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        others[i] = client_connect();
    enter();
    int fd = ask(inside("GET /v1/events"), "", "");
    int job = job_accept();
    /* more of them, while the owner reads: his connection stays */
    for (int i = 0; i < OTHERS; i++) {
        close(others[i]);
        others[i] = client_connect();
    }
    send_text(job, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1234");
    receive_until(fd, "1234");
    close(fd);
    close(job);
    for (int i = 0; i < OTHERS; i++)
        close(others[i]);
}

Test(web, a_port_that_is_taken_is_an_error)
{
    struct web *second;
    cr_assert_eq(
            web_create(
                    &(struct web_options){.socket = socket_path, .port = port},
                    &second),
            ZD_ERR_CREATE);
    cr_assert_str_eq(zd_error_get()->code, "E1102");
}
