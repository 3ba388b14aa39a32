/* fuzz_request.c - bytes that anyone may send, through the transport
 * and all routes.
 *
 *   fuzz_request SECONDS [SEED]     requests of seeds.json, and mutations
 *
 * One input is one connection: the first byte says how (in which pieces, by
 * whom, closed when, and whether the rest is taken as it is or as "METHOD
 * TARGET\nBODY" that is put into a sound frame first). Beside what the
 * sanitizers see: an answer is HTTP with a status of docs/control.md, bodies
 * that say JSON are, and nothing is left of a connection that has ended. */
#include "base/clock.h"
#include "daemon/control/routes.h"
#include "daemon/http/server.h"
#include "tests/support/fuzz.h"
#include "tests/support/scratch.h"

#include <sys/socket.h>
#include <time.h>

enum { POSTED_MAX = 32, REPLY_MAX = 1 << 20, INPUT_MAX = 160 << 10 };

enum { /* of the first byte */
       HOW_FRAMED = 1,
       HOW_PIECES = 2,  /* some bytes at a time */
       HOW_HALF = 4,    /* half is closed after the input */
       HOW_LEAVES = 16, /* closes without reading */
       HOW_BUSY = 32    /* no room for a command */
};

/* --- inputs --------------------------------------------------------------- */

static json_t *seeds; /* of seeds.json: the first byte, then the rest */

/* clang-format off */
static const char *const words[] = {
        "\r\n", "\r\n\r\n", "\n", " ", ":", "?", "&", "=", "%00", "%2f", "%",
        "{", "}", "[", "]", "\"", "\\", "\\u0000", "\\ud800", ",", "null",
        "true", "1e400", "-0", "18446744073709551616", "0x10", "NaN", "wait",
        "\"wait\": true", "since", "max", "HTTP/1.1", "HTTP/1.0", "GET ",
        "POST ", "/v1/", "Content-Length: 5\r\n", "Content-Length: 65537\r\n",
        "Transfer-Encoding: chunked\r\n", "Connection: close\r\n",
        "Last-Event-ID: 1\r\n", "Expect: 100-continue\r\n", "\xff\xfe",
        "\xc3\xa9", "\xed\xa0\x80", "\x7f", "+", "#", "..", "/", "5m", "-1"};
/* clang-format on */

static uint64_t state; /* of what is picked */

static size_t pick(size_t below)
{
    return (size_t)(fuzz_next(&state) % below);
}

static const char *pick_seed(void)
{
    return json_string_value(
            json_array_get(seeds, pick(json_array_size(seeds))));
}

/* Replace `cut` bytes at `at` by `part`. */
static size_t put_part(
        uint8_t *input, size_t bytes, size_t at, size_t cut, const void *part,
        size_t part_bytes)
{
    if (cut > bytes - at)
        cut = bytes - at;
    if (bytes - cut + part_bytes > INPUT_MAX)
        return bytes;
    memmove(input + at + part_bytes, input + at + cut, bytes - at - cut);
    memcpy(input + at, part, part_bytes);
    return bytes - cut + part_bytes;
}

static size_t repeat_part(uint8_t *input, size_t bytes, size_t at)
{
    uint8_t part[64];
    size_t part_bytes = 1 + pick(sizeof part - 1);
    if (part_bytes > bytes - at)
        part_bytes = bytes - at;
    memcpy(part, input + at, part_bytes);
    size_t times = pick(8) ? pick(20) : pick(2500);
    while (times--)
        bytes = put_part(input, bytes, at, 0, part, part_bytes);
    return bytes;
}

static size_t mutate(uint8_t *input, size_t bytes)
{
    size_t at = 1 + pick(bytes - 1);
    uint8_t byte = (uint8_t)pick(256);
    const char *word = words[pick(sizeof words / sizeof *words)];
    const char *seed = pick_seed();
    size_t from = pick(strlen(seed));
    switch (pick(8)) {
    case 0:
        input[at] ^= (uint8_t)(1 << pick(8));
        return bytes;
    case 1:
        return put_part(input, bytes, at, 1, &byte, 1);
    case 2:
        return put_part(input, bytes, at, pick(16), "", 0);
    case 3:
        return repeat_part(input, bytes, at);
    case 4:
        return put_part(
                input, bytes, at, pick(64), seed + from, strlen(seed) - from);
    default:
        return put_part(input, bytes, at, pick(4), word, strlen(word));
    }
}

static size_t make_input(uint8_t *input)
{
    const char *seed = pick_seed();
    size_t bytes = strlen(seed);
    memcpy(input, seed, bytes);
    input[0] = (uint8_t)((input[0] & HOW_FRAMED) | (pick(32) << 1));
    for (size_t i = pick(6); i > 0 && bytes > 2; i--)
        bytes = mutate(input, bytes);
    return bytes;
}

/* --- the server ----------------------------------------------------------- */

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
    f.state->config = f.config;
    struct routes_options options = {.state = f.state, .post = on_post};
    f.routes = routes_create(&options);
    open_server();
}

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

/* --- one connection ------------------------------------------------------- */

static void turn(void)
{
    http_sweep(f.server);
    http_run(f.server);
}

/* Every command that was accepted ends, well or not. */
static void end_commands(bool is_good)
{
    struct message_done done = {
            .failed = !is_good,
            .error =
                    {.status = ZD_ERR_IO,
                     .code = "E0999",
                     .what = "a disk \"x\"\n"},
            .result = json_pack("{s:s}", "path", "out/checkpoint-1")};
    for (int i = 0; i < f.posted_count; i++) {
        done.command = f.posted[i];
        done.step = i;
        routes_done(f.routes, &done);
    }
    f.posted_count = 0;
    json_decref(done.result);
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
    json_auto_t *json = json_loadb(body, body_bytes, JSON_DECODE_ANY, NULL);
    if (!json && body_bytes)
        fail("a body that is not JSON", reply);
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

static void try_input(const uint8_t *data, size_t bytes)
{
    static char framed[INPUT_MAX + 4096];
    int how = data[0];
    f.is_busy = how & HOW_BUSY;
    if (how & HOW_FRAMED) {
        size_t whole = frame(data + 1, bytes - 1, framed, sizeof framed);
        converse((uint8_t *)framed, whole, how);
    } else
        converse(data + 1, bytes - 1, how);
    end_commands(true);
    uv_run(&f.loop, UV_RUN_NOWAIT);
}

int main(int count, char **args)
{
    static uint8_t input[INPUT_MAX];
    double end = clock_seconds() + (count > 1 ? strtod(args[1], NULL) : 10);
    long inputs = 0;
    size_t i;
    json_t *seed;
    need(json_parse_file("tests/daemon/http/seeds.json", 1 << 20, &seeds) ==
         ZD_OK);
    state = count > 2 ? strtoull(args[2], NULL, 10) : 20261121;
    setup();
    json_array_foreach(seeds, i, seed)
    {
        const char *text = json_string_value(seed);
        try_input((const uint8_t *)text, strlen(text));
    }
    for (; clock_seconds() < end; inputs++)
        try_input(input, make_input(input));
    printf("ok 1 - %ld inputs\n1..1\n", inputs);
    teardown();
    json_decref(seeds);
    return 0;
}
