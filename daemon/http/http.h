/* http.h - an HTTP/1.1 server in a libuv loop: access and limits. A handler
 * answers the requests.
 *
 *   libmicrohttpd -> SO_PEERCRED, limits -> request -> http_handler -> reply
 *
 * A run serves its unix socket with it (and /metrics on TCP), zerodctl web the
 * loopback port of the page.
 *
 * Threads: everything here runs in the loop's thread.
 * Limits (docs/control.md): 64 connections; headers 8 KiB, body 64 KiB, a full
 * request within 5 s, 1 MiB of unread output. */
#pragma once

#include "base/file/json.h"
#include "base/status.h"

#include <sys/types.h>
#include <uv.h>

enum { HTTP_PARAMS_MAX = 16 };

struct http_request {   /* borrowed: valid during the call of the handler */
    const char *method; /* "GET", or any other word */
    const char *target; /* as it was sent */
    const char *path;   /* decoded, without the query */
    const char *param_names[HTTP_PARAMS_MAX]; /* of the query, decoded */
    const char *param_values[HTTP_PARAMS_MAX];
    int param_count;
    const char *body; /* NUL-terminated; "" without one */
    size_t body_bytes;
    /* Headers; NULL: absent. */
    const char *last_event_id, *origin, *host;
    uid_t uid;
    pid_t pid;
};

/* An answer that comes later or never ends: a waiting command, a stream. Made
 * by http_defer, ended by http_finish. */
struct http_stream;

struct http_reply { /* filled by the handler; at first 200, JSON */
    int status;
    const char *content_type; /* static */
    char *body;               /* malloc'd, taken over; NULL with a stream */
    size_t body_bytes;
    const char *static_body;    /* instead of body: never freed */
    const char *allow;          /* header of a 405, or NULL */
    struct http_stream *stream; /* instead of a body */
    bool is_owner; /* this TCP connection is authenticated as the owner's:
                      limits count it apart from others from now on */
};

typedef void http_handler(
        void *ctx, const struct http_request *request,
        struct http_reply *reply);

/* A reply that comes later: status and type are sent with the first bytes of
 * http_send. `gone` is called once if the client leaves before http_finish; the
 * stream must not be used after it, nor after http_finish. A whole answer that
 * is sent within one turn of the loop gets a length. */
struct http_stream *http_defer(
        struct http_reply *reply, void (*gone)(void *owner), void *owner);
/* Set the status of a deferred reply before its head is sent; `type` is
 * copied. */
void http_set_status(struct http_stream *stream, int status, const char *type);
/* Queue bytes (copied). False when more than 1 MiB would wait: then the client
 * is dropped, and `gone` was called. */
bool http_send(struct http_stream *stream, const char *data, size_t bytes);
/* Bytes that wait for the client to read. */
size_t http_queued(const struct http_stream *stream);
/* Call `drained` whenever the client has read all that was queued. */
void http_on_drained(struct http_stream *stream, void (*drained)(void *owner));
void http_finish(struct http_stream *stream);
/* As http_finish for an incomplete answer, so that the client notices. */
void http_break_off(struct http_stream *stream);

/* An error as docs/control.md has it. `hint` NULL: null. */
void http_error(
        struct http_reply *reply, int status, const char *code,
        const char *hint, const char *format, ...)
        __attribute__((format(printf, 5, 6)));
json_t *http_error_json(
        const char *code, const char *message, const char *hint);
/* Replies with `json`, whose reference it takes, as one line. */
void http_reply_json(struct http_reply *reply, int status, json_t *json);

struct http_options {
    const char *socket_path; /* made as docs/control.md says; NULL: none, only
                                http_listen_... */
    const char *const (*headers)[2]; /* of every answer: name, value; ends with
                                        {NULL}; NULL: none */
    http_handler *handler;
    void *ctx;
};

struct http_server;

/* Listen. ZD_ERR_CREATE (73): a live job of this name, a path that is too long
 * (of 108 bytes), a folder or file that is not ours. */
enum zd_status http_create(
        uv_loop_t *loop, const struct http_options *options,
        struct http_server **server_out);
/* Also answer GET `path` alone on TCP at "ADDRESS:PORT", with the same handler.
 */
enum zd_status http_listen_tcp(
        struct http_server *server, const char *address, const char *path);
/* Answer everything on 127.0.0.1:PORT (0: any free one). ZD_ERR_CREATE. */
enum zd_status http_listen_loopback(
        struct http_server *server, int port, int *port_out);
/* Finish what is being sent for at most `seconds`, close, remove the socket;
 * streams that were not finished are told `gone`. The loop must turn once more
 * (uv_run) before it is closed: libuv gives its handles back then. */
void http_destroy(struct http_server *server, double seconds);

/* The path of a job's socket; ZD_ERR_CREATE when it is too long. */
enum zd_status http_socket_path(
        const char *job_name, char *out, size_t out_bytes);
/* Make the folder of that path, for its owner. E1042 where another user was
 * there first. */
enum zd_status http_socket_make_folder(const char *path);
