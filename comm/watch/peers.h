/* peers.h - how far the ranks of other processes are, asked when a wait is
 * long, and the end of the job, told to them; for this folder only.
 *
 *   rank 1   ---- ASK ------>   the watch of every other rank,
 *            <--- TELL ------   which looks at its seat
 *            ---- OVER ----->   all: the job ends, and why
 *            <--- WRITTEN ---   the one that writes the event has done so
 *
 * MPI cannot be used for it: its thread is the trainer's, which may be what
 * hangs. Datagrams carry a secret of the job, which MPI has distributed; those
 * without it get no answer. Ports are the loopback's where all ranks are on one
 * host. Datagrams are IPv4, and go to all addresses of a rank.
 *
 * Threads: one at a time. */
#pragma once

#include "comm/watch/verdict.h"
#include "comm/watch/watch.h"

enum { PEERS_ADDRESSES = 4, PEERS_TOKEN_BYTES = 16 };

struct peers;

struct peer_about { /* of a rank, as all get it */
    char host[WATCH_HOST_MAX];
    unsigned char token[PEERS_TOKEN_BYTES]; /* rank 0's holds */
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
