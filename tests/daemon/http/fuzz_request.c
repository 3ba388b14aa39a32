/* fuzz_request.c - bytes that anyone may send, through the transport
 * and all routes.
 *
 *   fuzz_request SECONDS [SEED]     mutations of fuzz_inputs.c
 *   fuzz_request FILE..             inputs again
 *
 * One input is one connection: the first byte says how (in which pieces, by
 * whom, closed when, and whether the rest is taken as it is or as "METHOD
 * TARGET\nBODY" that is put into a sound frame first). Beside what the
 * sanitizers see: an answer is HTTP with a status of docs/control.md, bodies
 * that say JSON are, and nothing is left of a connection that has ended.
 *
 * With clang's own fuzzer, which then takes the place of main:
 *   CC=clang meson setup FOLDER -Db_sanitize=address,undefined -Db_lundef=false
 *        -Dc_args='-fsanitize=fuzzer-no-link -DZD_LIBFUZZER'
 *        -Dc_link_args=-fsanitize=fuzzer */
#include "daemon/control/routes.h"
#include "daemon/http/server.h"
#include "tests/daemon/http/fuzz_inputs.h"
#include "tests/support/scratch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

enum { POSTED_MAX = 32, REPLY_MAX = 1 << 20 };

static struct {
    struct scratch scratch;
    uv_loop_t loop;
    struct http_server *server;
    struct train_job job;
    struct run_state *state;
    struct routes *routes;
    json_t *config;
    struct train_command posted[POSTED_MAX];
    int posted_count;
    bool is_busy;
    char socket_path[128];
} f;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A wrong answer, told like a crash. */
static void fail(const char *what, const char *reply)
{
    fprintf(stderr, "fuzz_request: %s: %.300s\n", what, reply);
    abort();
}

static bool on_post(void *ctx, const struct train_command *command)
{
    if (f.is_busy || f.posted_count == POSTED_MAX)
        return false;
    f.posted[f.posted_count++] = *command;
    return true;
}

static void need(bool is_good)
{
    if (is_good)
        return;
    zd_error_print(stderr, zd_error_get());
    abort();
}

static void open_server(void)
{
    snprintf(
            f.socket_path, sizeof f.socket_path, "%s/run/fuzz.sock",
            f.scratch.dir);
    struct http_options options = {
            .socket_path = f.socket_path,
            .handler = routes_handle,
            .ctx = f.routes};
    need(!uv_loop_init(&f.loop));
    need(http_socket_make_folder(f.socket_path) == ZD_OK);
    need(http_create(&f.loop, &options, &f.server) == ZD_OK);
}

static void setup(void)
{
    scratch_init(&f.scratch);
    f.job = train_job_default();
    f.job.job.name = "fuzz";
    f.job.job.run_name = "";
    f.job.job.output_dir = f.scratch.dir;
    f.config = json_pack("{s:{}}", "values");
    f.state = run_state_create(&f.job, "/run/fuzz.sock");
    struct routes_options options = {
            .state = f.state,
            .config = f.config,
            .post = on_post};
    f.routes = routes_create(&options);
    open_server();
}

#ifndef ZD_LIBFUZZER
static void teardown(void)
{
    routes_end(f.routes);
    http_destroy(f.server, 0);
    uv_run(&f.loop, UV_RUN_DEFAULT);
    need(!uv_loop_close(&f.loop));
    routes_destroy(f.routes);
    run_state_destroy(f.state);
    json_decref(f.config);
    scratch_fini(&f.scratch);
}
#endif

/* --- one connection ------------------------------------------------------- */

static void turn(void)
{
    http_sweep(f.server);
    http_run(f.server);
}

/* Every command that was accepted ends, well or not. */
static void end_commands(bool is_good)
{
    struct zd_error error = {
            .status = ZD_ERR_IO, .code = "E0999", .what = "a disk \"x\"\n"};
    json_t *result = json_pack("{s:s}", "path", "out/checkpoint-1");
    for (int i = 0; i < f.posted_count; i++)
        routes_done(f.routes, &f.posted[i], i, is_good ? NULL : &error, result);
    f.posted_count = 0;
    json_decref(result);
    routes_tick(f.routes);
}

static bool is_known_status(int status)
{
    static const int known[] = {200, 202, 400, 403, 404, 405, 409,
                                413, 414, 431, 500, 503, 505};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == status)
            return true;
    return false;
}

/* The first answer of what was read. */
static void check_reply(const char *reply, size_t bytes)
{
    int status = 0;
    if (!bytes)
        return;
    if (sscanf(reply, "HTTP/1.%*1[01] %3d ", &status) != 1)
        fail("no HTTP", reply);
    if (status == 100) {
        const char *next = strstr(reply, "\r\n\r\n");
        if (next)
            check_reply(next + 4, bytes - (size_t)(next + 4 - reply));
        return;
    }
    if (!is_known_status(status))
        fail("a status of its own", reply);
    const char *length = strstr(reply, "Content-Length: ");
    const char *body = strstr(reply, "\r\n\r\n");
    const char *type = strstr(reply, "application/json");
    if (!body || !length || length > body || !type || type > body)
        return;
    body += 4;
    size_t body_bytes = strtoul(length + 16, NULL, 10);
    if (body_bytes > bytes - (size_t)(body - reply))
        return; /* it was not waited for */
    json_t *json = json_loadb(body, body_bytes, JSON_DECODE_ANY, NULL);
    if (!json && body_bytes)
        fail("a body that is not JSON", reply);
    json_decref(json);
}

static size_t read_some(int fd, char *out, size_t have)
{
    ssize_t bytes;
    while (have + 1 < REPLY_MAX &&
           (bytes = recv(fd, out + have, REPLY_MAX - 1 - have, MSG_DONTWAIT)) >
                   0)
        have += (size_t)bytes;
    out[have] = '\0';
    return have;
}

static void converse(const uint8_t *data, size_t bytes, int how)
{
    static char reply[REPLY_MAX];
    size_t have = 0, step = how & HOW_PIECES ? 1 + bytes / 7 : bytes;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, f.socket_path);
    need(!connect(fd, (struct sockaddr *)&address, sizeof address));
    turn();
    need(f.server->newest);
    for (size_t at = 0; at < bytes; at += step) {
        size_t part = bytes - at < step ? bytes - at : step;
        for (int tries = 0; part && tries < 64; tries++) {
            ssize_t sent =
                    send(fd, data + at, part, MSG_NOSIGNAL | MSG_DONTWAIT);
            turn();
            if (sent < 0 && errno != EAGAIN)
                break;
            if (sent > 0 && (size_t)sent < part) {
                at += (size_t)sent;
                part -= (size_t)sent;
            } else if (sent > 0)
                break;
        }
    }
    if (how & HOW_HALF)
        shutdown(fd, SHUT_WR);
    for (int i = 0; i < 3; i++) {
        turn();
        if (i == 1)
            end_commands(bytes % 2);
        if (!(how & HOW_LEAVES))
            have = read_some(fd, reply, have);
    }
    if (!(how & HOW_LEAVES))
        check_reply(reply, have);
    close(fd);
    for (int i = 0; i < 100 && f.server->newest; i++)
        turn();
    if (f.server->newest)
        fail("a connection is left behind", reply);
}

/* "METHOD TARGET\nBODY" as a request. Returns its bytes. */
static size_t frame(const uint8_t *data, size_t bytes, char *out, size_t max)
{
    const uint8_t *line = memchr(data, '\n', bytes);
    size_t head = line ? (size_t)(line - data) : bytes;
    size_t body = line ? bytes - head - 1 : 0;
    int begun = snprintf(
            out, max, "%.*s HTTP/1.1\r\nHost: z\r\nContent-Length: %zu\r\n\r\n",
            (int)head, (const char *)data, body);
    if (body && (size_t)begun + body < max)
        memcpy(out + begun, line + 1, body);
    return (size_t)begun + body < max ? (size_t)begun + body : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char framed[INPUT_MAX + 4096];
    if (!f.server)
        setup();
    if (bytes < 2 || bytes > INPUT_MAX)
        return 0;
    int how = data[0];
    f.is_busy = how & HOW_BUSY;
    if (how & HOW_FRAMED) {
        size_t whole = frame(data + 1, bytes - 1, framed, sizeof framed);
        converse((uint8_t *)framed, whole, how);
    } else
        converse(data + 1, bytes - 1, how);
    end_commands(true);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    return 0;
}

#ifndef ZD_LIBFUZZER
/* The input of a crash is what the file holds then. */
static void keep(int fd, const uint8_t *input, size_t bytes)
{
    if (fd >= 0 &&
        (ftruncate(fd, 0) || pwrite(fd, input, bytes, 0) != (ssize_t)bytes))
        abort();
}

static int run_file(const char *path)
{
    static uint8_t input[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (!file)
        return 66;
    size_t bytes = fread(input, 1, sizeof input, file);
    fclose(file);
    LLVMFuzzerTestOneInput(input, bytes);
    return 0;
}

static double now(void)
{
    return (double)uv_hrtime() * 1e-9;
}

int main(int count, char **args)
{
    static uint8_t input[INPUT_MAX];
    double seconds = count > 1 ? atof(args[1]) : 10;
    if (seconds <= 0) {
        int code = 0;
        for (int i = 1; i < count && !code; i++)
            code = run_file(args[i]);
        teardown();
        return code;
    }
    fuzz_begin(count > 2 ? strtoull(args[2], NULL, 10) : 20261121);
    const char *path = getenv("FUZZ_KEEP");
    int fd = path ? open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    setup();
    const char *seed;
    for (int i = 0; (seed = fuzz_seed(i)); i++)
        LLVMFuzzerTestOneInput((const uint8_t *)seed, strlen(seed));
    long inputs = 0;
    for (double end = now() + seconds; now() < end; inputs++) {
        size_t bytes = fuzz_make_input(input);
        keep(fd, input, bytes);
        LLVMFuzzerTestOneInput(input, bytes);
    }
    printf("ok 1 - %ld inputs\n1..1\n", inputs);
    teardown();
    return 0;
}
#endif
