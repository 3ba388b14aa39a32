#include "comm/watch/peers.h"
#include "base/must.h"

#include "base/clock.h"
#include "comm/watch/watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum kind { ASK = 1, TELL, OVER, WRITTEN };
static const double ASK_SECONDS = 1;
enum { AGAIN_MS = 100, OVER_TIMES = 3 }; /* datagrams get lost */
/* A socket holds some hundred that come meanwhile: others ask too. */
enum { SENT_TOGETHER = 32 };

struct peers {
    int size, rank, socket;
    const char *hosts;      /* borrowed */
    struct peer_about *all; /* (size) */
    const struct peers_calls *calls;
    /* the question under way; NULL: none */
    struct seat_told *told;
    bool *heard;
    uint64_t asked; /* which question: an answer to an earlier one is none */
};

struct message { /* fixed sizes, no padding */
    unsigned char token[PEERS_TOKEN_BYTES];
    uint32_t kind, rank; /* rank: who sends it */
    uint64_t asked;
    struct verdict verdict; /* OVER */
    struct seat_told told;  /* TELL */
};

bool peers_same_host(const struct peers *peers, int a, int b)
{
    const char *hosts = peers->hosts;
    return strcmp(hosts + (size_t)a * WATCH_HOST_MAX,
                  hosts + (size_t)b * WATCH_HOST_MAX) == 0;
}

/* Hosts may be named alike. */
static bool has_one_host(const struct peers *peers, bool shares_memory)
{
    if (!shares_memory)
        return false;
    for (int r = 1; r < peers->size; r++)
        if (!peers_same_host(peers, 0, r))
            return false;
    return true;
}

/* --- addresses ------------------------------------------------------------ */

/* Addresses of this host's interfaces; the loopback's only if there are no
 * others, or no other hosts. */
static void find_addresses(uint32_t *addresses, bool one_host)
{
    struct ifaddrs *list = NULL;
    int count = 0;
    if (!one_host && getifaddrs(&list) == 0) {
        for (struct ifaddrs *i = list; i && count < PEERS_ADDRESSES;
             i = i->ifa_next)
            if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
                (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK))
                addresses[count++] =
                        ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr;
        freeifaddrs(list);
    }
    if (count == 0)
        addresses[0] = htonl(INADDR_LOOPBACK);
}

/* -1: the system gives none. */
static int open_socket(bool one_host, uint16_t *port_out)
{
    struct sockaddr_in own = {
            .sin_family = AF_INET,
            .sin_addr = {htonl(one_host ? INADDR_LOOPBACK : INADDR_ANY)}};
    socklen_t bytes = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &bytes) != 0) {
        close(fd);
        return -1;
    }
    *port_out = own.sin_port;
    return fd;
}

/* --- messages ------------------------------------------------------------- */

int peers_socket(const struct peers *peers)
{
    return peers->all[0].addresses[0] ? peers->socket : -1;
}

/* False: there is none, or none of ours. */
static bool receive(
        const struct peers *peers, struct message *message,
        struct sockaddr_in *from)
{
    socklen_t bytes = sizeof *from;
    ssize_t got = recvfrom(
            peers->socket, message, sizeof *message, MSG_TRUNC,
            (struct sockaddr *)from, &bytes);
    return got == sizeof *message &&
           memcmp(message->token, peers->all[0].token, PEERS_TOKEN_BYTES) ==
                   0 &&
           message->rank < (uint32_t)peers->size;
}

static struct message message_of(const struct peers *peers, enum kind kind)
{
    struct message message;
    memset(&message, 0, sizeof message);
    message.kind = kind;
    message.rank = (uint32_t)peers->rank;
    memcpy(message.token, peers->all[0].token, PEERS_TOKEN_BYTES);
    return message;
}

static void send_to(
        const struct peers *peers, uint32_t address, uint16_t port,
        const struct message *message)
{
    struct sockaddr_in to = {
            .sin_family = AF_INET, .sin_port = port, .sin_addr = {address}};
    sendto(peers->socket, message, sizeof *message, 0, (struct sockaddr *)&to,
           sizeof to);
}

/* The interfaces of one's own host may be down. */
static void send_to_rank(
        const struct peers *peers, int rank, const struct message *message)
{
    const struct peer_about *about = &peers->all[rank];
    if (peers_same_host(peers, rank, peers->rank))
        send_to(peers, htonl(INADDR_LOOPBACK), about->port, message);
    for (int a = 0; a < PEERS_ADDRESSES && about->addresses[a]; a++)
        if (about->addresses[a] != htonl(INADDR_LOOPBACK) ||
            !peers_same_host(peers, rank, peers->rank))
            send_to(peers, about->addresses[a], about->port, message);
}

/* --- answering ------------------------------------------------------------ */

static void take_answer(struct peers *peers, const struct message *message)
{
    if (!peers->told || message->asked != peers->asked)
        return;
    peers->told[message->rank] = message->told;
    seat_told_check(&peers->told[message->rank], peers->size);
    peers->heard[message->rank] = true;
}

static void look_once(struct peers *peers)
{
    const struct peers_calls *calls = peers->calls;
    struct message message;
    struct sockaddr_in from;
    if (!receive(peers, &message, &from))
        return;
    switch ((enum kind)message.kind) {
    case ASK: {
        struct message answer = message_of(peers, TELL);
        answer.asked = message.asked;
        answer.told = calls->tell(calls->ctx);
        send_to(peers, from.sin_addr.s_addr, from.sin_port, &answer);
        break;
    }
    case TELL:
        take_answer(peers, &message);
        break;
    case OVER:
        if (verdict_is_known(&message.verdict, peers->size))
            calls->over(calls->ctx, &message.verdict);
        break;
    case WRITTEN:
        calls->written(calls->ctx);
    }
}

void peers_look(struct peers *peers, int ms)
{
    enum { MOST = 64 }; /* so that a flood leaves time for the watch */
    struct pollfd waits = {.fd = peers_socket(peers), .events = POLLIN};
    for (int i = 0; i < MOST && poll(&waits, 1, i ? 0 : ms) > 0; i++)
        look_once(peers);
}

/* --- asking --------------------------------------------------------------- */

static bool all_answered(const struct peers *peers)
{
    for (int r = 0; r < peers->size; r++)
        if (r != peers->rank && !peers->heard[r])
            return false;
    return true;
}

void peers_ask(struct peers *peers, struct seat_told *told, bool *heard)
{
    double begun = clock_seconds();
    if (peers_socket(peers) < 0)
        return;
    peers->told = told;
    peers->heard = heard;
    struct message message = message_of(peers, ASK);
    message.asked = ++peers->asked;
    while (!all_answered(peers) && clock_seconds() - begun < ASK_SECONDS) {
        double sent = clock_seconds();
        for (int r = 0; r < peers->size; r++) {
            if (r != peers->rank && !heard[r])
                send_to_rank(peers, r, &message);
            if (r % SENT_TOGETHER == 0)
                peers_look(peers, 0);
        }
        while (!all_answered(peers) &&
               1000 * (clock_seconds() - sent) < AGAIN_MS) {
            peers_look(peers, AGAIN_MS / 4);
            peers->calls->alive(peers->calls->ctx);
        }
    }
    peers->told = NULL;
}

static void tell_all(
        const struct peers *peers, const struct message *message,
        bool host_only)
{
    for (int i = 0; peers_socket(peers) >= 0 && i < OVER_TIMES; i++)
        for (int r = 0; r < peers->size; r++)
            if (r != peers->rank &&
                (!host_only || peers_same_host(peers, r, peers->rank)))
                send_to_rank(peers, r, message);
}

void peers_tell_over(
        struct peers *peers, const struct verdict *verdict, bool host_only)
{
    struct message message = message_of(peers, OVER);
    message.verdict = *verdict;
    tell_all(peers, &message, host_only);
}

void peers_tell_written(struct peers *peers)
{
    struct message message = message_of(peers, WRITTEN);
    tell_all(peers, &message, false);
}

/* --- life ----------------------------------------------------------------- */

struct peers *peers_open(
        int rank, int size, const char *hosts, bool shares_memory,
        const struct peers_calls *calls, struct peer_about *mine)
{
    struct peers *peers = zd_array(1, sizeof *peers);
    *peers = (struct peers){
            .size = size, .rank = rank, .hosts = hosts, .calls = calls};
    peers->all = zd_array((size_t)size, sizeof *peers->all);
    bool one_host = has_one_host(peers, shares_memory);
    memset(mine, 0, sizeof *mine);
    mine->pid = (int32_t)getpid();
    find_addresses(mine->addresses, one_host);
    peers->socket = open_socket(one_host, &mine->port);
    /* without a secret or a socket no one can be asked */
    if (getrandom(mine->token, PEERS_TOKEN_BYTES, 0) != PEERS_TOKEN_BYTES ||
        peers->socket < 0)
        mine->addresses[0] = 0;
    /* nor is an answer to another rank's question one */
    memcpy(&peers->asked, mine->token, sizeof peers->asked);
    return peers;
}

struct peer_about *peers_all(struct peers *peers)
{
    return peers->all;
}

void peers_destroy(struct peers *peers)
{
    if (!peers)
        return;
    if (peers->socket >= 0)
        close(peers->socket);
    free(peers->all);
    free(peers);
}
