#include "daemon/ctl/client.h"

#include "base/clock.h"
#include "base/must.h"
#include "base/text_stream.h"
#include "daemon/cli/fill.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BODY_MAX = 64 << 20, /* of a collected answer */
    TICK_MS = 100,       /* between two calls of idle */
    RETRY_MS = 20        /* the queue of connections is full */
};

/* --- one exchange --- */

bool client_failed_with(const char *code)
{
    return strcmp(zd_error_get()->code, code) == 0;
}

struct exchange {
    const struct client_request *request;
    struct client_answer *answer;
    struct http_reader reader;
    int fd;
    FILE *body;       /* into answer->body */
    double began;     /* of the wait for the next byte */
    bool is_too_long; /* more than BODY_MAX */
};

static enum zd_status fail_silent(
        const struct exchange *exchange, const char *why)
{
    ZD_FAIL(ZD_ERR_UNFIT, "E1092", "no answer from the job: %s", why);
    return zd_fail_where("%s", exchange->request->socket);
}

static enum zd_status fail_connect(const struct exchange *exchange, int cause)
{
    const char *path = exchange->request->socket;
    if (cause == EACCES || cause == EPERM) {
        ZD_FAIL(ZD_ERR_DENIED, "E1094",
                "no permission to open %s: the job is another user's", path);
        return zd_fail_help("its owner and root have access");
    }
    if (cause == ENOENT || cause == ENOTDIR || cause == ECONNREFUSED) {
        ZD_FAIL(ZD_ERR_NO_INPUT, "E1090", "no job answers at %s: %s", path,
                cause == ECONNREFUSED ? "it is left from a job that ended"
                                      : "this socket does not exist");
        return zd_fail_help(
                "how a job ended: zerodctl --dir OUTPUT_DIR status");
    }
    return fail_silent(exchange, strerror(cause));
}

/* Until bytes come or, with is_cut, the caller gives up. */
static enum zd_status wait_for_bytes(struct exchange *exchange)
{
    const struct client_request *request = exchange->request;
    struct pollfd poll_fd = {exchange->fd, POLLIN, 0};
    char why[64];
    while (poll(&poll_fd, 1, TICK_MS) <= 0) {
        double waited = clock_seconds() - exchange->began;
        if (request->idle && !request->idle(request->ctx, waited)) {
            exchange->answer->is_cut = true;
            return ZD_OK;
        }
        if (request->timeout > 0 && waited > request->timeout) {
            ZD_PRINT(why, "none came in %g s", request->timeout);
            return fail_silent(exchange, why);
        }
    }
    return ZD_OK;
}

static enum zd_status fail_stranger(
        const struct exchange *exchange, uid_t stranger)
{
    ZD_FAIL(ZD_ERR_DENIED, "E1094",
            "%s is not queried: it belongs to another user (uid %ld)",
            exchange->request->socket, (long)(int)stranger);
    return zd_fail_help("zerodctl asks jobs of your own and of root: sudo -u "
                        "OWNER zerodctl asks another user's");
}

static enum zd_status ask(struct exchange *exchange)
{
    const struct client_request *request = exchange->request;
    uid_t stranger;
    while ((exchange->fd = http_ask(
                    request->socket, &request->question, &stranger)) < 0) {
        double waited = clock_seconds() - exchange->began;
        if (errno == EKEYREJECTED)
            return fail_stranger(exchange, stranger);
        if (errno != EAGAIN && errno != EINTR)
            return fail_connect(exchange, errno);
        if (request->timeout > 0 && waited > request->timeout)
            return fail_silent(exchange, "too many others are asking it");
        poll(NULL, 0, RETRY_MS);
    }
    return ZD_OK;
}

/* Body bytes: to the caller when it is the answer that it hopes for. */
static bool take_body(void *ctx, const char *data, size_t bytes)
{
    struct exchange *exchange = ctx;
    struct client_answer *answer = exchange->answer;
    if (exchange->request->data && exchange->reader.status == 200) {
        answer->is_cut =
                !exchange->request->data(exchange->request->ctx, data, bytes);
        return !answer->is_cut;
    }
    exchange->is_too_long = (size_t)ftell(exchange->body) + bytes > BODY_MAX;
    if (!exchange->is_too_long)
        fwrite(data, 1, bytes, exchange->body);
    return !exchange->is_too_long;
}

static enum zd_status read_answer(struct exchange *exchange)
{
    struct http_reader *reader = &exchange->reader;
    char data[16384];
    exchange->began = clock_seconds();
    while (reader->state < HTTP_DONE && !exchange->answer->is_cut) {
        ZD_TRY(wait_for_bytes(exchange));
        if (exchange->answer->is_cut)
            break;
        ssize_t n = recv(exchange->fd, data, sizeof data, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0 && reader->head_bytes == 0)
            return fail_silent(exchange, "it closed the connection");
        if (n <= 0 && !http_reader_end(reader))
            return fail_silent(exchange, "its answer broke off");
        if (n <= 0)
            break;
        exchange->began = clock_seconds();
        if (!http_reader_take(reader, data, (size_t)n))
            break;
    }
    if (reader->state == HTTP_BROKEN)
        return fail_silent(exchange, "its answer is not HTTP");
    if (exchange->is_too_long)
        return fail_silent(exchange, "its answer is longer than 64 MiB");
    exchange->answer->status = reader->status;
    return ZD_OK;
}

/* --- what the job says --- */

/* ZD_OK for 2xx; else the record of the job's own words. */
static enum zd_status check(const struct client_answer *answer)
{
    static const struct {
        int http;
        enum zd_status status;
        const char *code;
    } codes[] = {
            {403, ZD_ERR_DENIED, "E1093"},
            {409, ZD_ERR_UNFIT, "E1087"}, /* allowed, but not possible now */
            {500, ZD_ERR_UNFIT, "E1096"},
            {503, ZD_ERR_UNFIT, "E1096"},
            {0, ZD_ERR_USAGE, "E1095"}};
    const struct look look = {.has_utf8 = true};
    int i = 0;
    if (answer->status >= 200 && answer->status < 300)
        return ZD_OK;
    while (codes[i].http && codes[i].http != answer->status)
        i++;
    json_auto_t *root = json_of_line(answer->body, answer->bytes);
    json_t *error = json_object_get(root, "error");
    const char *message = json_string_at(error, "message");
    char other[40];
    ZD_PRINT(other, "the job answered %d", answer->status);
    ZD_FAIL(codes[i].status, codes[i].code, "%s", message ? message : other);
    const char *hint = json_text_of(error, "hint", "");
    ZD_FREED char *safe = text_escape(&look, hint, strlen(hint), true);
    bool is_path = strncmp(safe, "GET /v1/", 8) == 0; /* as it is typed here */
    if (safe[0])
        zd_fail_help("%s%s", is_path ? "zerodctl " : "", safe + 8 * is_path);
    return codes[i].status;
}

/* --- questions --- */

enum zd_status client_ask(
        const struct client_request *request, struct client_answer *answer)
{
    *answer = (struct client_answer){0};
    struct exchange exchange = {
            .request = request,
            .answer = answer,
            .reader = {.sink = take_body, .ctx = &exchange},
            .body = text_stream_open(&answer->body, &answer->bytes),
            .began = clock_seconds()};
    enum zd_status status = ask(&exchange);
    ZD_THEN(status, read_answer(&exchange));
    if (exchange.fd >= 0)
        close(exchange.fd);
    fclose(exchange.body);
    if (status == ZD_OK && !answer->is_cut)
        status = check(answer);
    return status;
}

enum zd_status client_object(
        const struct client_request *request, json_t **json_out)
{
    struct client_answer answer;
    enum zd_status status = client_ask(request, &answer);
    ZD_FREED char *body = answer.body;
    *json_out = NULL;
    if (status != ZD_OK || answer.is_cut)
        return status;
    json_auto_t *json = json_of_line(body, answer.bytes);
    if (json_is_object(json)) {
        *json_out = json_incref(json);
        return ZD_OK;
    }
    ZD_FAIL(ZD_ERR_UNFIT, "E1092", "the answer to %s is not a JSON object",
            request->question.target);
    return zd_fail_where("%s", request->socket);
}

enum zd_status client_get(
        const char *socket, const char *what, double timeout, json_t **json_out)
{
    const struct client_request request = {
            .socket = socket,
            .question = {.method = "GET", .target = what},
            .timeout = timeout};
    return client_object(&request, json_out);
}
