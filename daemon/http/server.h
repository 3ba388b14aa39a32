/* server.h - what the files of the server share.
 *
 *   server.c   libmicrohttpd in the loop, timers, the end; HOST:PORT
 *   conn.c     a connection from accept to its end; which one is dropped, and
 *              when; sends replies and streams
 *   mhd.c      libmicrohttpd: makes requests of bytes
 *   socket.c   the socket's path, folder and end
 *
 * libmicrohttpd accepts, reads and writes; libuv polls its one descriptor for
 * each listening socket. A sweep, four times a second, keeps the deadlines and
 * notices clients that left while their request waits. A connection is one
 * request:
 *
 *   accept -> FRESH -> BODY or TOO_LARGE -- full request --> BUSY -> closed
 *                                                            |  ^
 *                                            http_defer      v  | http_finish
 *                                                          DEFERRED
 *
 * When one more is too many, a connection of the process with the most
 * connections is dropped; of those, DEFERRED ones last, and otherwise the one
 * longest in its state. */
#pragma once

#include "daemon/http/http.h"

#include <microhttpd.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
    HTTP_CONNECTIONS_MAX = 64,
    /* A client that was preempted between connect and write must not lose
     * against a flood: in its first moments a connection stays, up to this
     * number. */
    HTTP_CONNECTIONS_HARD = 256,
    HTTP_GRACE_MS = 20,
    HTTP_BACKLOG = 1024,
    HTTP_FIRST_REQUEST_MS = 5000,
    HTTP_STUCK_SECONDS = 65, /* an answer of which nothing is read */
    HTTP_SWEEP_MS = 250,     /* deadlines are kept to this */
    HTTP_HEADER_MAX = 8 << 10,
    HTTP_BODY_MAX = 64 << 10,
    HTTP_POOL_BYTES = 32 << 10, /* of libmicrohttpd, a connection */
    HTTP_QUEUE_MAX = 1 << 20
};

enum http_state {
    CONN_FRESH,
    CONN_BODY,      /* the headers are there */
    CONN_TOO_LARGE, /* the body is read and thrown away */
    CONN_DEFERRED,
    CONN_BUSY
};

struct http_door {  /* a listening socket */
    uv_poll_t poll; /* of libmicrohttpd's descriptor */
    struct MHD_Daemon *mhd;
    struct http_server *server;
    int fd; /* libmicrohttpd closes it */
    bool is_tcp;
};

struct http_conn {
    struct http_server *server;
    struct http_conn *next; /* came before this one */
    struct MHD_Connection *mhd;
    int fd; /* libmicrohttpd closes it */
    bool is_tcp;
    uid_t uid; /* (uid_t)-1 on TCP, until the connection is the owner's */
    pid_t pid;
    enum http_state state;
    uint64_t since_ms; /* in this state; half a request does not change it */
    bool is_dropped;   /* shut down, on its way out */
    bool is_suspended;
    char *target; /* as it came */
    char *body;   /* with a NUL; NULL: none yet */
    size_t body_bytes, body_room;
    struct http_stream *stream;
};

/* A queue between the code that makes an answer and the connection that sends
 * it. It also works without a connection (tests): bytes are kept. */
struct http_stream {
    struct http_conn *conn; /* NULL: not, or no more, on a connection */
    void (*gone)(void *owner);
    void (*drained)(void *owner);
    void *owner;
    int status;
    char type[96];
    char *data; /* queued: [begin, end) */
    size_t begin, end, capacity;
    bool is_head_sent, is_finished, is_dropped;
};

struct http_socket { /* what is ours in the file system */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    dev_t device;
    ino_t inode;
};

struct http_server {
    uv_loop_t *loop;
    struct http_options options; /* socket_path is not kept */
    uid_t owner;
    int first_request_ms; /* HTTP_FIRST_REQUEST_MS; tests have less patience */
    struct http_socket socket;
    struct http_door doors[2]; /* unix, TCP */
    char *tcp_path;            /* the one path of http_listen_tcp; NULL: all */
    char names[2][256];        /* of this host, for TCP */
    uv_timer_t soon, sweep;    /* libmicrohttpd must run; HTTP_SWEEP_MS */
    bool must_run_again;       /* libmicrohttpd has something to put away */
    int open_handles;          /* of libuv; the server is freed with the last */
    struct http_conn *newest;
    int count; /* without those dropped */
};

/* --- server.c --- */
uint64_t http_now_ms(void);
/* Let libmicrohttpd do what is due. Never from inside a handler. */
void http_run(struct http_server *server);
void http_run_soon(struct http_server *server); /* in the loop's next turn */

/* --- conn.c --- */
/* A connection that libmicrohttpd accepted; one of a stranger is dropped. */
struct http_conn *http_conn_create(
        struct http_door *door, struct MHD_Connection *mhd);
void http_conn_destroy(struct http_conn *conn); /* does not close `fd` */
void http_conn_enter(struct http_conn *conn, enum http_state state);
/* End a connection: what it sends is cut off; it is gone after http_run. */
void http_conn_drop(struct http_conn *conn);
/* At the next http_run. */
void http_conn_resume(struct http_conn *conn);
/* Deadlines, limits and clients that left; every HTTP_SWEEP_MS. */
void http_sweep(struct http_server *server);

/* --- mhd.c --- */
/* NULL: it does not start. */
struct MHD_Daemon *http_mhd_start(struct http_door *door);

/* Send a whole reply (its body is taken over). */
enum MHD_Result http_reply_send(
        struct http_conn *conn, struct http_reply *reply);
/* Begin to send the connection's stream, or go on waiting for its first
 * bytes. */
enum MHD_Result http_reply_later(struct http_conn *conn);
/* The reply is over, sent or not: tells the owner if it did not finish. */
void http_stream_release(struct http_stream *stream);
/* As much as is there and fits. */
size_t http_stream_take(struct http_stream *stream, char *out, size_t max);

/* --- socket.c --- */
/* A socket that listens. */
enum zd_status http_socket_open(
        const char *path, struct http_socket *socket_out, int *fd_out);
/* Removes what is still ours. */
void http_socket_remove(const struct http_socket *socket);
