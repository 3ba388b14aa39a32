#include "comm/watch/private.h"

#include "base/clock.h"
#include "base/must.h"

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
/* A socket's buffer holds about a hundred datagrams, and others ask too. */
enum { SENT_TOGETHER = 32 };

struct peers {
    struct watch *watch;
    int socket;
    bool is_asking;
    uint64_t asked; /* number of the question: answers to earlier ones are
                       ignored */
};

struct message { /* fixed sizes, no padding */
    unsigned char token[PEERS_TOKEN_BYTES];
    uint32_t kind, rank; /* rank: who sends it */
    uint64_t asked;
    struct verdict verdict; /* OVER */
    struct seat_told told;  /* TELL */
};

/* --- addresses ------------------------------------------------------------ */

/* Addresses of this host's interfaces; the loopback's only if there are no
 * others, or no other hosts. */
static void find_addresses(uint32_t *addresses, bool shares_memory)
{
    struct ifaddrs *list = NULL;
    int count = 0;
    if (!shares_memory && getifaddrs(&list) == 0) {
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
static int open_socket(bool shares_memory, uint16_t *port_out)
{
    struct sockaddr_in own = {
            .sin_family = AF_INET,
            .sin_addr = {htonl(shares_memory ? INADDR_LOOPBACK : INADDR_ANY)}};
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
    return peers->watch->about[0].addresses[0] ? peers->socket : -1;
}

/* False: there is no message, or it is not one of this job. */
static bool receive(
        const struct peers *peers, struct message *message,
        struct sockaddr_in *from)
{
    const struct watch *watch = peers->watch;
    socklen_t bytes = sizeof *from;
    ssize_t got = recvfrom(
            peers->socket, message, sizeof *message, MSG_TRUNC,
            (struct sockaddr *)from, &bytes);
    return got == sizeof *message &&
           memcmp(message->token, watch->about[0].token, PEERS_TOKEN_BYTES) ==
                   0 &&
           message->rank < (uint32_t)watch->size;
}

static struct message message_of(const struct peers *peers, enum kind kind)
{
    const struct watch *watch = peers->watch;
    struct message message;
    memset(&message, 0, sizeof message);
    message.kind = kind;
    message.rank = (uint32_t)watch->rank;
    memcpy(message.token, watch->about[0].token, PEERS_TOKEN_BYTES);
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

/* Ranks of this host are also sent to over the loopback: interfaces may be
 * down. */
static void send_to_rank(
        const struct peers *peers, int rank, const struct message *message)
{
    const struct peer_about *about = &peers->watch->about[rank];
    bool is_near = watch_same_host(peers->watch, rank);
    if (is_near)
        send_to(peers, htonl(INADDR_LOOPBACK), about->port, message);
    for (int a = 0; a < PEERS_ADDRESSES && about->addresses[a]; a++)
        if (about->addresses[a] != htonl(INADDR_LOOPBACK) || !is_near)
            send_to(peers, about->addresses[a], about->port, message);
}

/* --- answering ------------------------------------------------------------ */

static void take_answer(struct peers *peers, const struct message *message)
{
    struct rank_known *known = &peers->watch->ranks[message->rank];
    if (!peers->is_asking || message->asked != peers->asked)
        return;
    known->told = message->told;
    known->heard = true;
}

static void look_once(struct peers *peers)
{
    struct watch *watch = peers->watch;
    struct message message;
    struct sockaddr_in from;
    if (!receive(peers, &message, &from))
        return;
    switch ((enum kind)message.kind) {
    case ASK: {
        struct message answer = message_of(peers, TELL);
        answer.asked = message.asked;
        answer.told = seat_tell(watch->seats);
        send_to(peers, from.sin_addr.s_addr, from.sin_port, &answer);
        break;
    }
    case TELL:
        take_answer(peers, &message);
        break;
    case OVER:
        watch->heard = message.verdict;
        watch->has_heard = true;
        break;
    case WRITTEN:
        watch->is_written = true;
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

static bool all_answered(const struct watch *watch)
{
    for (int r = 0; r < watch->size; r++)
        if (r != watch->rank && !watch->ranks[r].heard)
            return false;
    return true;
}

void peers_ask(struct peers *peers)
{
    struct watch *watch = peers->watch;
    double begun = clock_seconds();
    struct message message = message_of(peers, ASK);
    if (peers_socket(peers) < 0)
        return;
    message.asked = ++peers->asked;
    peers->is_asking = true;
    while (!all_answered(watch) && clock_seconds() - begun < ASK_SECONDS) {
        double sent = clock_seconds();
        for (int r = 0; r < watch->size; r++) {
            if (r != watch->rank && !watch->ranks[r].heard)
                send_to_rank(peers, r, &message);
            if (r % SENT_TOGETHER == 0)
                peers_look(peers, 0);
        }
        while (!all_answered(watch) &&
               1000 * (clock_seconds() - sent) < AGAIN_MS) {
            peers_look(peers, AGAIN_MS / 4);
            watch_alive(watch);
        }
    }
    peers->is_asking = false;
}

static void tell_all(
        const struct peers *peers, const struct message *message,
        bool host_only)
{
    const struct watch *watch = peers->watch;
    for (int i = 0; peers_socket(peers) >= 0 && i < OVER_TIMES; i++)
        for (int r = 0; r < watch->size; r++)
            if (r != watch->rank && (!host_only || watch_same_host(watch, r)))
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
        struct watch *watch, bool shares_memory, struct peer_about *mine)
{
    struct peers *peers = zd_array(1, sizeof *peers);
    peers->watch = watch;
    mine->pid = (int32_t)getpid();
    find_addresses(mine->addresses, shares_memory);
    peers->socket = open_socket(shares_memory, &mine->port);
    /* without a secret or a socket no one can be asked */
    if (getrandom(mine->token, PEERS_TOKEN_BYTES, 0) != PEERS_TOKEN_BYTES ||
        peers->socket < 0)
        mine->addresses[0] = 0;
    /* start question numbers at random, so that they differ between ranks */
    memcpy(&peers->asked, mine->token, sizeof peers->asked);
    return peers;
}

void peers_destroy(struct peers *peers)
{
    if (!peers)
        return;
    if (peers->socket >= 0)
        close(peers->socket);
    free(peers);
}
