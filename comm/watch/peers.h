/* peers.h - asks other processes how far their ranks are when a wait is long,
 * and tells them that the job ends; for this folder only.
 *
 *   rank 1   ---- ASK ------>   the watch of every other rank,
 *            <--- TELL ------   which looks at its seat
 *            ---- OVER ----->   all: the job ends, and why
 *            <--- WRITTEN ---   the one that writes the event has done so
 *
 * MPI cannot be used: only the trainer's thread may call it, and that may be
 * what hangs. Datagrams carry a secret of the job, distributed by MPI; those
 * without it get no answer. With all ranks on one host they use the loopback.
 * They are IPv4 and go to all addresses of a rank.
 *
 * Threads: one at a time. */
#pragma once

#include "comm/watch/verdict.h"
#include "comm/watch/watch.h"

enum { PEERS_ADDRESSES = 4, PEERS_TOKEN_BYTES = 16 };

struct peers;

struct peer_about { /* of a rank; all ranks have it */
    char host[WATCH_HOST_MAX];
    unsigned char token[PEERS_TOKEN_BYTES]; /* rank 0's is used */
    uint32_t addresses[PEERS_ADDRESSES];    /* network byte order; 0: none */
    uint16_t port, unused;
    int32_t pid;
};

/* shares_memory: do all ranks, so that the loopback reaches them? `watch` is
 * borrowed. *mine is filled but for the host. */
struct peers *peers_open(
        struct watch *watch, bool shares_memory, struct peer_about *mine);
void peers_destroy(struct peers *peers);
/* Looks at what has come, for so long: has_heard, is_written. */
void peers_look(struct peers *peers, int ms);
/* Descriptor to poll for datagrams; -1: no peer can be queried. */
int peers_socket(const struct peers *peers);
/* Asks all others, in their watch_alive; takes a second at most. Of those that
 * answer `told` and `heard` are set. */
void peers_ask(struct peers *peers);
/* Report the end of the job to all others, or to those of this host. */
void peers_tell_over(
        struct peers *peers, const struct verdict *verdict, bool host_only);
void peers_tell_written(struct peers *peers);
