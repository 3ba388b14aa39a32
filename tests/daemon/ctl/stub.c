#include "tests/daemon/ctl/stub.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_MAX = 1 << 17, BODY_MAX = 1 << 20 };

struct stub {
    int listener;
    int stop[2]; /* a pipe: closed to end */
    pthread_t thread;
    char socket[200], answers[400];
    enum stub_manner manner;
    pthread_mutex_t mutex; /* of what follows */
    char body[REQUEST_MAX];
    int requests;
};

int stub_find_manner(const char *name)
{
    static const char *const names[] = {
            [STUB_PLAIN] = "plain",     [STUB_CLOSE] = "close",
            [STUB_DRIBBLE] = "dribble", [STUB_SLOW] = "slow",
            [STUB_HANG] = "hang",       [STUB_GARBAGE] = "garbage",
            [STUB_CUT] = "cut",         [STUB_DEAF] = "deaf",
            [STUB_NO_JSON] = "no-json", [STUB_READONLY] = "readonly",
            [STUB_BUSY] = "busy",       [STUB_FAILING] = "failing",
            [STUB_ENDING] = "ending"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

/* --- what is answered --- */

struct answer {
    int status;
    const char *type;
    char body[BODY_MAX];
};

static void from_file(
        const struct stub *stub, const char *name, struct answer *answer)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", stub->answers, name);
    FILE *file = fopen(path, "r");
    size_t bytes =
            file ? fread(answer->body, 1, sizeof answer->body - 1, file) : 0;
    answer->body[bytes] = '\0';
    answer->status = 200;
    if (file)
        fclose(file);
}

static void error_of(
        struct answer *answer, int status, const char *code,
        const char *message, const char *hint)
{
    answer->status = status;
    snprintf(
            answer->body, sizeof answer->body,
            "{\"error\": {\"code\": \"%s\", \"message\": \"%s\", \"hint\": "
            "%s}}",
            code, message, hint);
}

static const char *result_of(const char *command)
{
    static const char *const results[][2] = {
            {"checkpoint", "{\"path\": \"out/quickstart/checkpoint-000120\"}"},
            {"eval", "{\"eval_loss\": 2.375}"},
            {"sample",
             "{\"samples\": [{\"prompt\": \"Once\", \"text\": \" upon "
             "a \\u001b[31mtime\"}]}"},
            {"pause", "{}"},
            {"resume", "{}"},
            {"stop", "{\"path\": \"out/quickstart/checkpoint-000120\"}"},
            {"set", "{\"learning_rate\": 1e-4, \"save_steps\": 50, "
                    "\"eval_steps\": null, \"note\": \"it warms up\", "
                    "\"warning\": \"it rises\"}"},
            {"profile", "{\"path\": \"out/quickstart/trace.json\"}"}};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        if (strcmp(results[i][0], command) == 0)
            return results[i][1];
    return NULL;
}

static void answer_command(
        const struct stub *stub, const char *command, const char *body,
        struct answer *answer)
{
    const char *result = result_of(command);
    if (!result)
        error_of(answer, 404, "E_NOT_FOUND", "there is no such path", "null");
    else if (stub->manner == STUB_READONLY)
        error_of(
                answer, 403, "E_FORBIDDEN", "the job takes no commands",
                "\"control.readonly = true\"");
    else if (stub->manner == STUB_BUSY)
        error_of(
                answer, 409, "E_CONFLICT", "the job is already paused",
                "\"zerodctl \\u001b[31mresume\"");
    else if (stub->manner == STUB_FAILING)
        error_of(answer, 500, "E_FAILED", "no room for a checkpoint", "null");
    else if (strstr(body, "\"wait\":true"))
        snprintf(
                answer->body, sizeof answer->body,
                "{\"done\": true, \"id\": 7, \"command\": \"%s\", \"step\": "
                "120, \"result\": %s}",
                command, result);
    else {
        answer->status = 202;
        snprintf(
                answer->body, sizeof answer->body,
                "{\"accepted\": true, \"id\": 7, \"command\": \"%s\"}",
                command);
    }
    if (stub->manner == STUB_SLOW)
        poll(NULL, 0, 1500);
}

static void answer_get(
        const struct stub *stub, const char *path, struct answer *answer)
{
    static const char *const files[][2] = {
            {"/v1", "greeting.json"},
            {"/v1/status", "status.json"},
            {"/v1/ranks", "ranks.json"},
            {"/v1/memory", "memory.json"},
            {"/v1/config", "config.json"},
            {"/v1/samples", "samples.json"},
            {"/v1/logs", "log.txt"},
            {"/v1/events", "events.txt"},
            {"/v1/metrics/history", "history.json"}};
    size_t length = strcspn(path, "?");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strlen(files[i][0]) == length &&
            strncmp(files[i][0], path, length) == 0) {
            from_file(stub, files[i][1], answer);
            if (strstr(files[i][1], ".txt"))
                answer->type = "text/plain";
            return;
        }
    error_of(answer, 404, "E_NOT_FOUND", "there is no such path", "null");
}

/* --- how --- */

static void put(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        text += n;
        bytes -= (size_t)n;
    }
}

static void put_answer(
        const struct stub *stub, int fd, const struct answer *answer)
{
    char head[512], framing[64] = "";
    size_t bytes = strlen(answer->body);
    if (stub->manner != STUB_CLOSE)
        snprintf(
                framing, sizeof framing, "Content-Length: %zu\r\n",
                bytes + (stub->manner == STUB_CUT ? 10 : 0));
    int length = snprintf(
            head, sizeof head,
            "HTTP/1.0 %d Status\r\ncontent-type: %s\r\n%s\r\n",
            answer->status, answer->type, framing);
    if (stub->manner == STUB_DRIBBLE) {
        for (int i = 0; i < length; i++)
            put(fd, head + i, 1);
        for (size_t i = 0; i < bytes; i++)
            put(fd, answer->body + i, 1);
        return;
    }
    put(fd, head, (size_t)length);
    put(fd, answer->body, bytes);
}

/* A request with its body; false: the client left, or the test ends. */
static bool read_request(struct stub *stub, int fd, char *text)
{
    size_t used = 0, wanted = 0;
    for (;;) {
        struct pollfd fds[2] = {{fd, POLLIN, 0}, {stub->stop[0], POLLIN, 0}};
        poll(fds, 2, -1);
        if (fds[1].revents)
            return false;
        ssize_t n = recv(fd, text + used, REQUEST_MAX - 1 - used, 0);
        if (n <= 0)
            return false;
        used += (size_t)n;
        text[used] = '\0';
        char *end = strstr(text, "\r\n\r\n");
        char *length = strstr(text, "Content-Length: ");
        if (end)
            wanted = (size_t)(end + 4 - text) +
                     (length ? strtoul(length + 16, NULL, 10) : 0);
        if (end && used >= wanted)
            return true;
    }
}

static void wait_for_end(struct stub *stub, int fd)
{
    struct pollfd fds[2] = {{fd, 0, 0}, {stub->stop[0], POLLIN, 0}};
    poll(fds, 2, -1);
}

static void serve_one(struct stub *stub, int fd, char *text)
{
    char method[8], path[512];
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer || stub->manner == STUB_DEAF || !read_request(stub, fd, text) ||
        sscanf(text, "%7s %511s", method, path) != 2) {
        free(answer);
        return;
    }
    const char *body = strstr(text, "\r\n\r\n") + 4;
    pthread_mutex_lock(&stub->mutex);
    stub->requests++;
    if (strcmp(method, "POST") == 0)
        strcpy(stub->body, body);
    pthread_mutex_unlock(&stub->mutex);
    *answer = (struct answer){.status = 200, .type = "application/json"};
    if (stub->manner == STUB_HANG) {
        wait_for_end(stub, fd);
    } else if (stub->manner == STUB_GARBAGE) {
        put(fd, "SSH-2.0-OpenSSH\r\n\r\n", 19);
    } else {
        if (stub->manner == STUB_ENDING)
            error_of(answer, 503, "E_ENDING", "the run is ending", "null");
        else if (stub->manner == STUB_NO_JSON)
            strcpy(answer->body, "<html>");
        else if (strcmp(method, "POST") == 0)
            answer_command(stub, path + 4, body, answer);
        else
            answer_get(stub, path, answer);
        put_answer(stub, fd, answer);
    }
    free(answer);
}

static void *serve(void *ctx)
{
    struct stub *stub = ctx;
    char *text = malloc(REQUEST_MAX);
    for (;;) {
        struct pollfd fds[2] = {
                {stub->listener, POLLIN, 0}, {stub->stop[0], POLLIN, 0}};
        poll(fds, 2, -1);
        if (fds[1].revents || !text)
            break;
        int fd = accept4(stub->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        serve_one(stub, fd, text);
        close(fd);
    }
    free(text);
    return NULL;
}

struct stub *stub_start(
        const char *socket_path, const char *answers, enum stub_manner manner)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stub *stub = calloc(1, sizeof *stub);
    if (!stub || strlen(socket_path) >= sizeof address.sun_path)
        abort();
    snprintf(stub->socket, sizeof stub->socket, "%s", socket_path);
    snprintf(stub->answers, sizeof stub->answers, "%s", answers);
    stub->manner = manner;
    pthread_mutex_init(&stub->mutex, NULL);
    strcpy(address.sun_path, socket_path);
    stub->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(stub->listener, (struct sockaddr *)&address, sizeof address) !=
                0 ||
        listen(stub->listener, 16) != 0 || pipe2(stub->stop, O_CLOEXEC) != 0 ||
        pthread_create(&stub->thread, NULL, serve, stub) != 0) {
        free(stub);
        return NULL;
    }
    return stub;
}

const char *stub_last_body(struct stub *stub)
{
    static _Thread_local char copy[REQUEST_MAX];
    pthread_mutex_lock(&stub->mutex);
    strcpy(copy, stub->body);
    pthread_mutex_unlock(&stub->mutex);
    return copy;
}

int stub_requests(struct stub *stub)
{
    pthread_mutex_lock(&stub->mutex);
    int requests = stub->requests;
    pthread_mutex_unlock(&stub->mutex);
    return requests;
}

void stub_stop(struct stub *stub)
{
    close(stub->stop[1]);
    pthread_join(stub->thread, NULL);
    close(stub->stop[0]);
    close(stub->listener);
    unlink(stub->socket);
    pthread_mutex_destroy(&stub->mutex);
    free(stub);
}
