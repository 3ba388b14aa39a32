/* hosts.h - how far the ranks of other hosts are, asked when a collective
 * hangs; for this folder only.
 *
 *   host-a                                   host-b
 *   rank 1: asks  ---- datagram: ask ---->   a thread of its first rank,
 *                 <--- datagram: numbers -   which looks at the host's seats
 *
 * MPI cannot be used for it: its thread is the trainer's, which may be what
 * hangs. The thread on the other side does nothing but wait for questions, so
 * that it answers while its trainer computes, reads or hangs. Datagrams carry a
 * secret of the job, which MPI has distributed, and questions without it get no
 * answer; ports are taken only where there are several hosts. Datagrams are
 * IPv4, and go to all addresses of a host until it has answered. Nobody has to
 * answer: a host that does not is named as such. */
#ifndef ZD_COMM_NCCL_HOSTS_H
#define ZD_COMM_NCCL_HOSTS_H

#include "comm/backend.h"

#include <stdatomic.h>

enum {
    HOSTS_SEATS_MAX = 64, /* ranks of a host that can be told */
    SEAT_RECORD = 64,     /* collectives whose description is kept */
};

/* How far the ranks of a host are, in memory they share. */
struct seat {
    _Atomic uint64_t begun, done;       /* numbers of collectives */
    _Atomic uint64_t what[SEAT_RECORD]; /* of the last ones, by number */
    _Atomic int32_t teller; /* of the first seat: rank + 1 that tells of a
                               failure for its host; 0: none yet */
    atomic_bool is_told;    /* of the first seat: the teller has done so */
};

/* seat.c: kind, type and bytes of a collective in one word. */
uint64_t seat_word(enum comm_op_kind kind, enum dtype type, size_t bytes);
/* Whether seat_word makes such words: those of datagrams may be any. */
bool seat_word_is_known(uint64_t word);
/* "all_gather fp32 120000 bytes", of one that is known. */
void seat_word_text(uint64_t word, char *out, size_t out_bytes);
/* What a rank has under this number; 0: not entered, or too long ago. */
uint64_t seat_what(const struct seat *seat, uint64_t number);
const char *seat_kind_name(enum comm_op_kind kind);

struct hosts;

struct hosts_question {
    uint64_t number; /* of the collective that hangs */
    /* of ranks whose hosts answer, by rank: */
    uint64_t *begun; /* (size) */
    uint64_t *done;  /* (size) */
    uint64_t *what;  /* (size) what they have under `number`; see seat_what */
    bool *has_answered; /* (size) */
};

/* Every rank calls it. NULL is what there is for one host, and where the system
 * gives no socket. */
enum zd_status hosts_create(
        struct comm *control, const struct seat *seats,
        struct hosts **hosts_out);
void hosts_destroy(struct hosts *hosts);
/* Asks all other hosts; takes a second at most. Any thread. */
void hosts_ask(struct hosts *hosts, const struct hosts_question *question);

#endif
