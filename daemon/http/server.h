/* server.h - what the files of the server share.
 *
 *   server.c   listeners, accept, timers, the end
 *   conn.c     a connection from accept to its end; which one is dropped, when
 *   mhd.c      libmicrohttpd: connections, from bytes to requests
 *   reply.c    from replies and streams to bytes
 *   socket.c   the socket's path, folder, lock and end
 *   tcp.c      HOST:PORT
 *
 * libuv polls the listeners and libmicrohttpd's one descriptor; libmicrohttpd
 * owns the connections. A sweep, four times a second, keeps the deadlines and
 * notices clients that left while their request waits.
 *
 * Life of a connection:
 *
 *   accept -> FRESH -- full request --> BUSY -- reply sent --> IDLE
 *                                        |  ^                   |
 *                      http_defer        v  | full request      |
 *                                    DEFERRED  <----------------+
 *
 * FRESH and IDLE may hold half a request. When one more is too many, a
 * connection of the process with the most connections is dropped; of those,
 * DEFERRED ones last, and otherwise the one longest in its state. */
#ifndef ZD_DAEMON_HTTP_SERVER_H
#define ZD_DAEMON_HTTP_SERVER_H

#include "daemon/http/http.h"

#include <microhttpd.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/un.h>

enum {
    HTTP_CONNECTIONS_MAX = 64,
    HTTP_PER_USER_MAX = 16,
    /* A client that was preempted between connect and write must not lose
     * against a flood: in its first moments a connection stays, up to these
     * numbers. */
    HTTP_CONNECTIONS_HARD = 256,
    HTTP_PER_USER_HARD = 64,
    HTTP_GRACE_MS = 20,
    HTTP_ACCEPT_BATCH = 16, /* then those accepted are served */
    HTTP_BACKLOG = 1024,
    HTTP_FIRST_REQUEST_MS = 5000,
    HTTP_IDLE_MS = 60000,
    HTTP_STUCK_MS = 65000, /* an answer of which nothing is read */
    HTTP_SWEEP_MS = 250,   /* deadlines are kept to this */
    HTTP_HEADER_MAX = 8 << 10,
    HTTP_BODY_MAX = 64 << 10,
    HTTP_BODY_SWALLOWED = 1 << 20, /* read to its end before the 413 */
    HTTP_POOL_BYTES = 32 << 10,    /* of libmicrohttpd, a connection */
    HTTP_QUEUE_MAX = 1 << 20
};

enum http_state { CONN_FRESH, CONN_IDLE, CONN_BUSY, CONN_DEFERRED };

enum http_phase { /* of the request that is being received */
                  PHASE_NONE,
                  PHASE_BODY,
                  PHASE_TOO_LARGE, /* a body that is read and thrown away */
                  PHASE_ANSWERED,
                  PHASE_LATER /* the handler made a stream of it */
};

struct http_peer {
    uid_t uid; /* (uid_t)-1 on TCP, until the connection is the owner's */
    pid_t pid;
    bool may_act, is_tcp;
};

struct http_listener {
    uv_poll_t poll;
    struct http_server *server;
    int fd; /* -1: none */
    bool is_tcp;
};

struct http_conn {
    struct http_server *server;
    struct http_conn *next;     /* came before this one */
    struct MHD_Connection *mhd; /* NULL: was just accepted */
    int fd;                     /* libmicrohttpd closes it */
    struct http_peer peer;
    int siblings; /* connections of its process, with it */
    enum http_state state;
    uint64_t since_ms; /* in this state; half a request does not change it */
    bool is_dropped;   /* shut down, on its way out */
    bool is_suspended, wants_resume;
    bool is_last; /* the request after which the connection ends */
    /* the request */
    enum http_phase phase;
    char *target; /* as it came; NULL: no first line yet */
    char *body;
    size_t body_bytes, body_expected;
    struct http_stream *stream;
};

/* A queue between who makes an answer and the connection that sends it. It also
 * works without a connection (tests): bytes are kept. */
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
    int fd, lock_fd; /* fd: handed to the listener */
    dev_t device;
    ino_t inode;
};

struct http_server {
    uv_loop_t *loop;
    struct http_options options; /* socket_path is not kept */
    uid_t owner;
    int first_request_ms, idle_ms; /* HTTP_.._MS; tests have less patience */
    struct http_socket socket;
    struct http_listener listeners[2]; /* unix, TCP */
    char *tcp_path;     /* the one path of http_listen_tcp; NULL: all */
    char names[2][256]; /* of this host, for TCP; "": none */
    struct MHD_Daemon *mhd;
    uv_poll_t mhd_poll;
    uv_timer_t mhd_timer; /* when libmicrohttpd wants to run */
    uv_timer_t sweep_timer;
    bool must_run_again; /* libmicrohttpd has something to put away */
    int open_handles;    /* of libuv; the server is freed with the last */
    struct http_conn *newest;
    int count;                /* without those dropped */
    struct http_conn *adding; /* during MHD_add_connection */
    int spare_fd;             /* lets one more in when descriptors run out */
};

/* --- server.c --- */
uint64_t http_now_ms(void);
/* Let libmicrohttpd do what is due. Never from inside a handler. */
void http_run(struct http_server *server);
void http_run_soon(struct http_server *server); /* in the loop's next turn */
/* A TCP `fd` is taken over, also on failure. */
enum zd_status http_listener_start(
        struct http_server *server, int fd, bool is_tcp);

/* --- conn.c --- */
/* Takes over `fd`. False: the peer is neither the owner nor root nor a reader,
 * and `fd` is closed unread. */
bool http_conn_accept(struct http_server *server, int fd, bool is_tcp);
/* Takes over `fd`. */
void http_conn_create(
        struct http_server *server, int fd, const struct http_peer *peer);
void http_conn_destroy(struct http_conn *conn); /* does not close `fd` */
void http_conn_enter(struct http_conn *conn, enum http_state state);
/* A TCP connection is the owner's: from now on it counts as one of his. */
void http_conn_prove_owner(struct http_conn *conn);
void http_conn_forget_request(struct http_conn *conn);
/* End a connection: what it sends is cut off; it is gone after http_run. */
void http_conn_drop(struct http_conn *conn);
/* From a callback of libmicrohttpd alone. */
void http_conn_suspend(struct http_conn *conn);
/* At the next http_run. */
void http_conn_resume(struct http_conn *conn);
/* Drop the connection that is first in line. False: there is none. */
bool http_drop_one(struct http_server *server);
/* Deadlines, limits and clients that left; every HTTP_SWEEP_MS. */
void http_sweep(struct http_server *server);

/* --- mhd.c --- */
enum zd_status http_mhd_start(struct http_server *server);
void http_mhd_add(struct http_conn *conn); /* it may be gone after it */

/* --- reply.c --- */
/* Send a whole reply (its body is taken over). */
enum MHD_Result http_reply_send(
        struct http_conn *conn, struct http_reply *reply, bool must_close);
/* An error of the server's own. */
enum MHD_Result http_refuse(
        struct http_conn *conn, int status, const char *code, const char *hint,
        const char *message);
/* Begin to send the connection's stream, or go on waiting for its first
 * bytes. */
enum MHD_Result http_reply_later(struct http_conn *conn);
/* What was asked with http_conn_resume; then comes MHD_run. */
void http_resume_due(struct http_server *server);
/* The handler has returned `stream`: from now on it is sent on `conn`. */
void http_stream_attach(struct http_stream *stream, struct http_conn *conn);
/* The reply is over, sent or not: tells the owner if it did not finish. */
void http_stream_release(struct http_stream *stream);
/* As much as is there and fits. */
size_t http_stream_take(struct http_stream *stream, char *out, size_t max);

/* --- socket.c --- */
enum zd_status http_socket_open(
        const struct http_options *options, struct http_socket *socket_out);
/* Closes what is open, removes what is still ours. */
void http_socket_close(struct http_socket *socket);

#endif
