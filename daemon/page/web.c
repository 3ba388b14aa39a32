/* web.c - see web.h. */
#include "daemon/page/web.h"

#include "base/log.h"
#include "daemon/page/answers.h"
#include "daemon/page/guard.h"
#include "daemon/page/upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 64,
    GUESTS_MAX = 32, /* of those, connections that have shown no secret */
    BACKLOG = 128,
    IDLE_SECONDS = 60,
    BODY_MAX = 65536,
    LOOK_SECONDS = 1, /* how often the job is looked for */
    MISSES_MAX = 3    /* that often not there: it is gone */
};

/* A connection, from accept to its end. */
struct seat {
    int fd; /* libmicrohttpd's, open while the seat is taken */
    bool is_taken, is_guest;
    uint64_t order; /* of arrival */
};

struct web {
    struct guard guard;
    pthread_mutex_t mutex; /* of the seats */
    struct seat seats[CONNECTIONS_MAX];
    uint64_t arrivals;
    const char *socket;
    uid_t owner;
    struct MHD_Daemon *daemon;
    int listen_fd, stop_fd; /* stop_fd: readable once all must end */
    char address[96];
    char page[PATH_MAX]; /* the file that leads there; "": none */
};

/* --- connections: a stranger's never keep the owner's out --- */

/* Beyond GUESTS_MAX the oldest guest is shut down; its thread ends it. */
static void seat_take(struct web *web, int fd, void **slot)
{
    struct seat *seat = NULL, *oldest = NULL;
    int guests = 0;
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        struct seat *at = &web->seats[i];
        if (!at->is_taken) {
            seat = at;
        } else if (at->is_guest) {
            guests++;
            if (!oldest || at->order < oldest->order)
                oldest = at;
        }
    }
    if (guests >= GUESTS_MAX) {
        oldest->is_guest = false; /* counted no more, and not chosen again */
        shutdown(oldest->fd, SHUT_RDWR);
    }
    if (!seat) /* libmicrohttpd accepts no more than CONNECTIONS_MAX */
        return;
    *seat = (struct seat){
            .fd = fd,
            .is_taken = true,
            .is_guest = true,
            .order = web->arrivals++};
    *slot = seat;
}

static void on_connection(
        void *ctx, struct MHD_Connection *connection, void **slot,
        enum MHD_ConnectionNotificationCode code)
{
    struct web *web = ctx;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    pthread_mutex_lock(&web->mutex);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        seat_take(web, info->connect_fd, slot);
    else if (*slot)
        ((struct seat *)*slot)->is_taken = false;
    pthread_mutex_unlock(&web->mutex);
}

/* The connection has shown the secret or the token. */
static void seat_keep(struct web *web, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct seat *seat = info ? info->socket_context : NULL;
    pthread_mutex_lock(&web->mutex);
    if (seat)
        seat->is_guest = false;
    pthread_mutex_unlock(&web->mutex);
}

/* --- one request --- */

struct visit {
    char *target; /* as it was sent */
    char body[BODY_MAX + 1];
    size_t body_bytes;
    bool has_begun, is_too_large;
};

static void *visit_begin(
        void *ctx, const char *uri, struct MHD_Connection *connection)
{
    struct visit *visit = calloc(1, sizeof *visit);
    if (visit)
        visit->target = strdup(uri);
    return visit;
}

static void visit_end(
        void *ctx, struct MHD_Connection *connection, void **state,
        enum MHD_RequestTerminationCode why)
{
    struct visit *visit = *state;
    if (visit)
        free(visit->target);
    free(visit);
    *state = NULL;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

struct header_count {
    const char *name;
    int count;
};

static enum MHD_Result count_header(
        void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct header_count *header = ctx;
    header->count += strcasecmp(name, header->name) == 0;
    return MHD_YES;
}

/* NULL too when it is there more than once: then none of them counts. */
static const char *only_header(
        struct MHD_Connection *connection, const char *name)
{
    struct header_count found = {.name = name};
    MHD_get_connection_values(
            connection, MHD_HEADER_KIND, count_header, &found);
    return found.count == 1 ? header(connection, name) : NULL;
}

/* --- to the job --- */

static ssize_t relay_read(void *ctx, uint64_t offset, char *out, size_t bytes)
{
    ssize_t got = upstream_read(ctx, out, bytes);
    return got > 0    ? got
           : got == 0 ? MHD_CONTENT_READER_END_OF_STREAM
                      : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void relay_free(void *ctx)
{
    upstream_close(ctx);
}

static enum MHD_Result relay(
        const struct web *web, struct MHD_Connection *connection,
        const char *method, const struct visit *visit)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
            connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct upstream *upstream = upstream_open(&(struct upstream_request){
            .socket = web->socket,
            .owner = web->owner,
            .method = method,
            .target = guard_inside(&web->guard, visit->target),
            .body = visit->body,
            .body_bytes = visit->body_bytes,
            .accept = header(connection, "Accept"),
            .last_event_id = header(connection, "Last-Event-ID"),
            .client_fd = info ? info->connect_fd : -1,
            .stop_fd = web->stop_fd,
    });
    if (!upstream)
        return answer_error(
                connection, 503, "E_ENDING", "the job does not answer any more",
                "zerodctl ls");
    struct MHD_Response *response = MHD_create_response_from_callback(
            MHD_SIZE_UNKNOWN, UPSTREAM_PIECE, relay_read, upstream, relay_free);
    if (!response) {
        upstream_close(upstream);
        return MHD_NO;
    }
    return answer(
            connection, upstream->reader.status, upstream->reader.type,
            response);
}

static void take_body(struct visit *visit, const char *data, size_t bytes)
{
    if (visit->body_bytes + bytes > BODY_MAX) {
        visit->is_too_large = true;
        return;
    }
    memcpy(visit->body + visit->body_bytes, data, bytes);
    visit->body_bytes += bytes;
}

/* Once: nobody else can use the token. */
static void tell_entered(const struct web *web)
{
    if (web->page[0])
        unlink(web->page);
    zd_log_info(
            "the address was opened, and works no more: whoever did it has the "
            "page and its buttons. Was it not you, Ctrl-C ends it");
}

static enum MHD_Result handle(
        void *ctx, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *data,
        size_t *data_bytes, void **state)
{
    struct web *web = ctx;
    struct visit *visit = *state;
    if (!visit || !visit->target)
        return MHD_NO;
    if (!visit->has_begun) { /* the head is there; a body may follow */
        visit->has_begun = true;
        return MHD_YES;
    }
    if (*data_bytes) {
        take_body(visit, data, *data_bytes);
        *data_bytes = 0;
        return MHD_YES;
    }
    enum guard_verdict verdict = guard_judge(
            &web->guard, &(struct guard_request){
                                 .method = method,
                                 .target = visit->target,
                                 .host = only_header(connection, "Host"),
                                 .origin = header(connection, "Origin"),
                         });
    if (verdict == GUARD_PASS || verdict == GUARD_ENTER)
        seat_keep(web, connection);
    if (verdict == GUARD_ENTER) {
        tell_entered(web);
        return answer_enter(connection, &web->guard);
    }
    if (verdict != GUARD_PASS)
        return answer_refused(connection, verdict, visit->target);
    if (visit->is_too_large)
        return answer_error(
                connection, 413, "E_TOO_LARGE", "a body of more than 64 KiB",
                "send less");
    return relay(web, connection, method, visit);
}

/* --- life --- */

static enum zd_status listen_on(int port, int *fd_out, int *port_out)
{
    struct sockaddr_in address = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t bytes = sizeof address;
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        goto err;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0)
        goto err;
    *fd_out = fd;
    *port_out = ntohs(address.sin_port);
    return ZD_OK;

err:
    ZD_FAIL(ZD_ERR_CREATE, "E1102", "cannot listen on 127.0.0.1:%d: %s", port,
            strerror(errno));
    zd_fail_help("leave --port out: then any free one is taken");
    if (fd >= 0)
        close(fd);
    return ZD_ERR_CREATE;
}

static struct MHD_Daemon *start(struct web *web)
{
    return MHD_start_daemon(
            MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                    MHD_USE_POLL | MHD_USE_ITC,
            0, NULL, NULL, handle, web, MHD_OPTION_LISTEN_SOCKET,
            web->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)IDLE_SECONDS, MHD_OPTION_STRICT_FOR_CLIENT, 1,
            MHD_OPTION_NOTIFY_CONNECTION, on_connection, web,
            MHD_OPTION_URI_LOG_CALLBACK, visit_begin, web,
            MHD_OPTION_NOTIFY_COMPLETED, visit_end, web, MHD_OPTION_END);
}

enum zd_status web_create(
        const struct web_options *options, struct web **web_out)
{
    struct web *web = calloc(1, sizeof *web);
    int port;
    if (!web)
        return ZD_FAIL(ZD_ERR_MEMORY, "E1103", "no memory for the relay");
    pthread_mutex_init(&web->mutex, NULL);
    web->socket = options->socket;
    web->owner = options->owner;
    enum zd_status status = listen_on(options->port, &web->listen_fd, &port);
    if (status != ZD_OK)
        goto err_free;
    status = guard_init(&web->guard, port);
    if (status != ZD_OK)
        goto err_listen;
    snprintf(
            web->address, sizeof web->address, "http://127.0.0.1:%d/?token=%s",
            port, web->guard.token);
    web->stop_fd = eventfd(0, EFD_CLOEXEC);
    web->daemon = web->stop_fd < 0 ? NULL : start(web);
    if (!web->daemon) {
        status =
                ZD_FAIL(ZD_ERR_DEVICE, "E1103", "cannot start the relay: %s",
                        strerror(errno));
        goto err_stop;
    }
    *web_out = web;
    return ZD_OK;

err_stop:
    if (web->stop_fd >= 0)
        close(web->stop_fd);
err_listen:
    close(web->listen_fd);
err_free:
    free(web);
    return status;
}

const char *web_address(const struct web *web)
{
    return web->address;
}

static bool job_listens(const struct web *web)
{
    int fd = upstream_connect(web->socket, web->owner, false);
    if (fd < 0)
        return errno != ENOENT && errno != ECONNREFUSED;
    close(fd);
    return true;
}

static void waited_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

void web_block_signals(void)
{
    sigset_t set;
    waited_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool web_wait(struct web *web)
{
    struct timespec pause = {.tv_sec = LOOK_SECONDS};
    sigset_t set;
    waited_signals(&set);
    for (int misses = 0; misses < MISSES_MAX;) {
        if (sigtimedwait(&set, NULL, &pause) > 0)
            return true;
        misses = job_listens(web) ? 0 : misses + 1;
    }
    return false;
}

void web_destroy(struct web *web)
{
    if (!web)
        return;
    /* who waits for the job wakes, and its thread can end */
    eventfd_write(web->stop_fd, 1);
    MHD_stop_daemon(web->daemon); /* closes the listening socket */
    close(web->stop_fd);
    if (web->page[0])
        unlink(web->page);
    free(web);
}

/* A file that leads to the address, 0600 from its first moment. */
static bool make_page(struct web *web)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (!folder || folder[0] != '/' || access(folder, W_OK) != 0)
        folder = "/tmp";
    int length = snprintf(
            web->page, sizeof web->page, "%s/zerod-web-XXXXXX.html", folder);
    int fd = length < (int)sizeof web->page
                     ? mkostemps(web->page, strlen(".html"), O_CLOEXEC)
                     : -1;
    if (fd < 0) {
        zd_log_warning(
                "no browser is opened: no file can be made in %s: %s", folder,
                strerror(errno));
        web->page[0] = '\0';
        return false;
    }
    bool is_written =
            dprintf(fd,
                    "<!doctype html><meta "
                    "charset=\"utf-8\"><title>zerod</title>"
                    "<meta name=\"referrer\" content=\"no-referrer\"><meta "
                    "http-equiv=\"refresh\" content=\"0; url=%s\"><a "
                    "href=\"%s\">zerod</a>\n",
                    web->address, web->address) > 0;
    return close(fd) == 0 && is_written;
}

void web_open_browser(struct web *web)
{
    extern char **environ;
    char *argv[] = {"xdg-open", web->page, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    if (!make_page(web))
        return;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed =
            posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        zd_log_warning("xdg-open cannot be started: %s", strerror(failed));
}
