/* http.h - HTTP/1.1 on a unix socket, from a libuv loop: who may speak, how
 * much, how long. What is said is routes.h's.
 *
 *   accept -> SO_PEERCRED -> limits -> libmicrohttpd -> http_handler -> reply
 *
 * Threads: everything here runs in the loop's thread.
 * Limits (issue's figures): 64 connections, 16 of one user, the longest idle or
 * incomplete one goes first; headers 8 KiB, body 64 KiB, first full request in
 * 5 s, idle 60 s, 1 MiB of unread output. */
#ifndef ZD_DAEMON_HTTP_HTTP_H
#define ZD_DAEMON_HTTP_HTTP_H

#include "base/status.h"

#include <sys/types.h>
#include <uv.h>

enum { HTTP_PARAMS_MAX = 16 };

struct http_request {   /* borrowed: valid during the call of the handler */
    const char *method; /* "GET" | "POST"; others are refused before */
    const char *path;   /* decoded, without the query */
    const char *param_names[HTTP_PARAMS_MAX]; /* of the query, decoded */
    const char *param_values[HTTP_PARAMS_MAX];
    int param_count;
    const char *body; /* NUL-terminated; "" without one */
    size_t body_bytes;
    const char *accept;        /* header; NULL: not there */
    const char *last_event_id; /* likewise */
    uid_t uid;
    pid_t pid;
    bool may_act; /* the owner or root */
};

/* An answer that is not there yet, or never ends: a waiting command, a stream.
 * Made by http_defer, ended by http_finish. */
struct http_stream;

struct http_reply { /* filled by the handler */
    int status;
    const char *content_type; /* static */
    char *body;               /* malloc'd, taken over; NULL with a stream */
    size_t body_bytes;
    const char *static_body;    /* instead of body: never freed */
    const char *allow;          /* header of a 405, or NULL */
    struct http_stream *stream; /* instead of a body */
};

typedef void http_handler(
        void *ctx, const struct http_request *request,
        struct http_reply *reply);

/* A reply that comes later: status and type are sent with the first bytes of
 * http_send. `gone` is called once if the client leaves before http_finish; the
 * stream must not be used after it, nor after http_finish. What is sent before
 * http_finish within one turn of the loop, and alone, is an answer with a
 * length: the connection can be kept. NULL: no memory. */
struct http_stream *http_defer(
        struct http_reply *reply, void (*gone)(void *owner), void *owner);
/* Status of a deferred reply whose head was not sent yet. */
void http_set_status(struct http_stream *stream, int status, const char *type);
/* Queue bytes (copied). False when more than 1 MiB would wait: then the client
 * is dropped, and `gone` was called. */
bool http_send(struct http_stream *stream, const char *data, size_t bytes);
/* Bytes that wait for the client to read. */
size_t http_queued(const struct http_stream *stream);
void http_finish(struct http_stream *stream);

struct http_options {
    const char *socket_path; /* checked and made as docs/control.md says */
    bool is_default_path;    /* our own folder: made 0700, checked */
    int status_gid;          /* -1: none */
    http_handler *handler;
    void *ctx;
};

struct http_server;

/* Listen. ZD_ERR_CREATE (73): a live job of this name, a path that is too long
 * (of 108 bytes), a folder or file that is not ours. */
enum zd_status http_create(
        uv_loop_t *loop, const struct http_options *options,
        struct http_server **server_out);
/* Also answer GET `path` alone on TCP "HOST:PORT", with the same handler. */
enum zd_status http_listen_tcp(
        struct http_server *server, const char *address, const char *path);
/* Finish what is being sent for at most `seconds`, close, remove the socket;
 * streams that were not finished are told `gone`. The loop must turn once more
 * (uv_run) before it is closed: libuv gives its handles back then. */
void http_destroy(struct http_server *server, double seconds);

/* The path of a job's socket; ZD_ERR_CREATE when it is too long. */
enum zd_status http_socket_path(
        const char *job_name, char *out, size_t out_bytes);
/* Make the folder of that path, for its owner and, unless it is -1, a group.
 * E1042 where another user was there first. */
enum zd_status http_socket_make_folder(const char *path, int status_gid);

#endif
