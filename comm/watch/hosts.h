/* hosts.h - how far the ranks of other hosts are, asked when a wait is long,
 * and the end of the job, told to them; for this folder only.
 *
 *   host-a                                   host-b
 *   rank 1: asks  ---- datagram: ask ---->   the watch of one of its ranks,
 *                 <--- datagram: tell -----  which looks at the host's seats
 *                 ---- datagram: over ---->  all of them
 *
 * MPI cannot be used for it: its thread is the trainer's, which may be what
 * hangs. Datagrams carry a secret of the job, which MPI has distributed; those
 * without it get no answer. Ports are taken only where there are several hosts.
 * Datagrams are IPv4, and go to all addresses of a host until it has answered,
 * to one of its ranks after the other: some may be stopped.
 *
 * Threads: one at a time. */
#ifndef ZD_COMM_WATCH_HOSTS_H
#define ZD_COMM_WATCH_HOSTS_H

#include "base/status.h"
#include "comm/watch/verdict.h"

enum {
    HOSTS_SEATS_MAX = 256, /* ranks of a host that can be told */
    HOSTS_ADDRESSES = 4,
    HOSTS_TOKEN_BYTES = 16
};

struct hosts;

struct hosts_about {                        /* of a rank, as all get it */
    unsigned char token[HOSTS_TOKEN_BYTES]; /* rank 0's holds */
    uint32_t addresses[HOSTS_ADDRESSES];    /* network byte order; 0: none */
    uint16_t port, unused;
};

/* What comes while there is a look at the socket. */
struct hosts_calls {
    void *ctx;
    /* Of this host's ranks, in their order; returns how many. */
    int (*tell)(void *ctx, enum seat_lane lane, struct seat_told *told);
    void (*over)(void *ctx, const struct verdict *verdict);
    void (*alive)(void *ctx); /* often, while hosts are asked */
};

struct hosts *hosts_create(int size);
/* first: (size) lowest rank of each rank's host; borrowed, as are calls. */
void hosts_open(
        struct hosts *hosts, int rank, const int *first,
        const struct hosts_calls *calls, struct hosts_about *mine);
/* (size) to be filled with what each rank's hosts_open gave. */
struct hosts_about *hosts_all(struct hosts *hosts);
void hosts_join(struct hosts *hosts, bool has_all);
/* Is there someone to be asked? */
bool hosts_are_open(const struct hosts *hosts);
void hosts_destroy(struct hosts *hosts);

/* Looks at what has come, for so long. */
void hosts_look(struct hosts *hosts, int ms);
/* To be polled for what comes. -1: no one can be asked. */
int hosts_socket(const struct hosts *hosts);

struct hosts_question {
    enum seat_lane lane;
    /* of ranks whose hosts answer, by rank: */
    struct seat_told *told; /* (size) */
    bool *heard;            /* (size) */
};
/* Asks all other hosts; takes a second at most. */
void hosts_ask(struct hosts *hosts, const struct hosts_question *question);
/* The job is over; all ranks of other hosts are told. */
void hosts_tell_over(struct hosts *hosts, const struct verdict *verdict);

#endif
