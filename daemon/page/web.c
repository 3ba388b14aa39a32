/* web.c - see web.h. */
#include "daemon/page/web.h"

#include "base/log.h"
#include "daemon/http/connect.h"
#include "daemon/page/guard.h"
#include "daemon/page/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 1000, /* how often the job is looked for */
    MISSES_MAX = 3, /* that often not there: it is gone */
    SIGNALS = 3
};

struct web {
    uv_loop_t loop;
    struct http_server *http;
    struct guard guard;
    struct relay relay;
    uv_timer_t look;
    uv_signal_t signals[SIGNALS];
    int misses;
    bool is_over, was_signalled;
    char address[96];
    char folder[2 * GUARD_SECRET_BYTES + 3]; /* "/SECRET/" */
    char page[PATH_MAX]; /* the file that leads there; "": none */
};

/* --- answers --- */

static const char *const headers[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src "
         "'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
         "form-action 'none'; frame-ancestors 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {NULL}};

static const struct {
    int status;
    const char *code, *message, *hint;
} refusals[] = {
        [GUARD_HOST] =
                {403, "E_FORBIDDEN",
                 "the Host header names another host or port",
                 "open the page as 127.0.0.1 or localhost, with its own "
                 "port"},
        [GUARD_ORIGIN] =
                {403, "E_FORBIDDEN",
                 "the request comes from another site's page",
                 "only the page itself may ask"},
        [GUARD_UNKNOWN] = {
                401, "E_UNKNOWN", "this relay has no such path",
                "open the address that zerodctl web printed; it "
                "works once"}};

static void refuse(
        enum guard_verdict verdict, const char *target,
        struct http_reply *reply)
{
    static const char used[] =
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\""
            " content=\"light dark\"><title>zerod</title><p "
            "style=\"font:16px system-ui;margin:3em\">This address has been "
            "used, or is not complete. Run <b>zerodctl web</b> again and open "
            "the address that it prints: each works once.\n";
    if (verdict == GUARD_UNKNOWN && strncmp(target, "/v1", 3) != 0)
        *reply = (struct http_reply){
                .status = 401,
                .content_type = "text/html; charset=utf-8",
                .static_body = used};
    else
        http_error(
                reply, refusals[verdict].status, refusals[verdict].code,
                refusals[verdict].hint, "%s", refusals[verdict].message);
}

/* Once: the token does not work again. */
static void enter(struct web *web, struct http_reply *reply)
{
    if (web->page[0])
        unlink(web->page);
    zd_log_info(
            "the address was opened and works no more: whoever opened it has "
            "the page and its buttons. If that was not you, end it with "
            "Ctrl-C");
    *reply = (struct http_reply){
            .status = 303,
            .content_type = "",
            .static_body = "",
            .location = web->folder};
}

static void answer(
        void *ctx, const struct http_request *request, struct http_reply *reply)
{
    struct web *web = ctx;
    enum guard_verdict verdict = guard_judge(&web->guard, request);
    if (verdict == GUARD_PASS)
        relay_ask(
                &web->relay, request,
                guard_inside(&web->guard, request->target), reply);
    else if (verdict == GUARD_ENTER)
        enter(web, reply);
    else
        refuse(verdict, request->target, reply);
    reply->is_owner = verdict == GUARD_PASS || verdict == GUARD_ENTER;
}

/* --- life --- */

static void on_signal(uv_signal_t *handle, int number)
{
    struct web *web = handle->data;
    web->is_over = web->was_signalled = true;
}

static void on_look(uv_timer_t *timer)
{
    struct web *web = timer->data;
    uid_t stranger;
    int fd =
            http_connect(web->relay.socket, web->relay.owner, false, &stranger);
    bool is_gone = fd < 0 && (errno == ENOENT || errno == ECONNREFUSED ||
                              errno == EKEYREJECTED);
    if (fd >= 0)
        close(fd);
    web->misses = is_gone ? web->misses + 1 : 0;
    web->is_over = web->is_over || web->misses == MISSES_MAX;
}

static void start_handles(struct web *web)
{
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&web->loop, &web->signals[i]);
        uv_signal_start(&web->signals[i], on_signal, numbers[i]);
        web->signals[i].data = web;
    }
    uv_timer_init(&web->loop, &web->look);
    uv_timer_start(&web->look, on_look, LOOK_MS, LOOK_MS);
    web->look.data = web;
}

enum zd_status web_create(
        const struct web_options *options, struct web **web_out)
{
    struct web *web = calloc(1, sizeof *web);
    int port;
    if (!web || uv_loop_init(&web->loop)) {
        free(web);
        return ZD_FAIL(ZD_ERR_MEMORY, "E1103", "no memory for the relay");
    }
    web->relay = (struct relay){&web->loop, options->socket, options->owner};
    start_handles(web);
    enum zd_status status = http_create(
            &web->loop,
            &(struct http_options){
                    .status_gid = -1,
                    .headers = headers,
                    .handler = answer,
                    .ctx = web},
            &web->http);
    if (status == ZD_OK)
        status = http_listen_loopback(web->http, options->port, &port);
    if (status == ZD_OK)
        status = guard_init(&web->guard, port);
    if (status != ZD_OK) {
        web_destroy(web);
        return status;
    }
    snprintf(web->folder, sizeof web->folder, "/%s/", web->guard.secret);
    snprintf(
            web->address, sizeof web->address, "http://127.0.0.1:%d/?token=%s",
            port, web->guard.token);
    *web_out = web;
    return ZD_OK;
}

const char *web_address(const struct web *web)
{
    return web->address;
}

bool web_serve(struct web *web)
{
    while (!web->is_over)
        uv_run(&web->loop, UV_RUN_ONCE);
    return web->was_signalled;
}

void web_destroy(struct web *web)
{
    if (!web)
        return;
    http_destroy(web->http, 0);
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&web->signals[i], NULL);
    uv_close((uv_handle_t *)&web->look, NULL);
    uv_run(&web->loop, UV_RUN_DEFAULT);
    uv_loop_close(&web->loop);
    if (web->page[0])
        unlink(web->page);
    free(web);
}

/* --- the browser --- */

/* A file that leads to the address, 0600 from its first moment. */
static bool make_page(const char *address, char page[PATH_MAX])
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (!folder || folder[0] != '/' || access(folder, W_OK) != 0)
        folder = "/tmp";
    int length = snprintf(page, PATH_MAX, "%s/zerod-web-XXXXXX.html", folder);
    int fd = length < PATH_MAX ? mkostemps(page, strlen(".html"), O_CLOEXEC)
                               : -1;
    if (fd < 0) {
        zd_log_warning(
                "no browser is opened: cannot make a file in %s: %s", folder,
                strerror(errno));
        page[0] = '\0';
        return false;
    }
    bool is_written =
            dprintf(fd,
                    "<!doctype html><meta "
                    "charset=\"utf-8\"><title>zerod</title>"
                    "<meta name=\"referrer\" content=\"no-referrer\"><meta "
                    "http-equiv=\"refresh\" content=\"0; url=%s\"><a "
                    "href=\"%s\">zerod</a>\n",
                    address, address) > 0;
    return close(fd) == 0 && is_written;
}

void web_open_browser(struct web *web)
{
    extern char **environ;
    char *argv[] = {"xdg-open", web->page, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (!make_page(web->address, web->page))
        return;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        zd_log_warning("xdg-open cannot be started: %s", strerror(failed));
}
