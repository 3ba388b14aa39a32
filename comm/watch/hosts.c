#include "comm/watch/hosts.h"
#include "base/must.h"

#include "base/clock.h"

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

enum { ASK = 1, TELL, OVER };
static const double ASK_SECONDS = 1;
enum { AGAIN_MS = 100, OVER_TIMES = 3 }; /* datagrams get lost */

struct hosts {
    int size, rank;
    int opened, socket;      /* socket: -1 until all are known */
    const int *first;        /* borrowed */
    struct hosts_about *all; /* (size) */
    const struct hosts_calls *calls;
    const struct hosts_question *question; /* under way; NULL: none */
    uint64_t asked; /* which question: an answer to an earlier one is none */
};

struct message {
    unsigned char token[HOSTS_TOKEN_BYTES];
    uint32_t kind, first, count; /* first: first rank of the host that tells */
    uint32_t lane;
    uint64_t asked;
    struct verdict verdict;
    struct seat_told told[HOSTS_SEATS_MAX];
};
static const size_t HEAD_BYTES = offsetof(struct message, told);

/* --- addresses ------------------------------------------------------------ */

/* Those of this host's interfaces; the loopback's only where there are no
 * others. */
static void find_addresses(uint32_t *addresses)
{
    struct ifaddrs *list;
    int count = 0;
    if (getifaddrs(&list) == 0) {
        for (struct ifaddrs *i = list; i && count < HOSTS_ADDRESSES;
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
static int open_socket(uint16_t *port_out)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t bytes = sizeof any;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &bytes) != 0) {
        close(fd);
        return -1;
    }
    *port_out = any.sin_port;
    return fd;
}

/* --- messages ------------------------------------------------------------- */

/* False: there is none, or none of ours. */
static bool receive(
        const struct hosts *hosts, struct message *message,
        struct sockaddr_in *from)
{
    socklen_t bytes = sizeof *from;
    ssize_t got = recvfrom(
            hosts->socket, message, sizeof *message, 0, (struct sockaddr *)from,
            &bytes);
    return got >= (ssize_t)HEAD_BYTES &&
           memcmp(message->token, hosts->all[0].token, HOSTS_TOKEN_BYTES) ==
                   0 &&
           message->count <= HOSTS_SEATS_MAX && message->lane < SEAT_LANES &&
           (size_t)got >=
                   HEAD_BYTES + message->count * sizeof(struct seat_told);
}

static void begin_message(
        const struct hosts *hosts, uint32_t kind, struct message *message)
{
    memset(message, 0, HEAD_BYTES);
    message->kind = kind;
    message->first = (uint32_t)hosts->first[hosts->rank];
    memcpy(message->token, hosts->all[0].token, HOSTS_TOKEN_BYTES);
}

static void send_to_rank(
        const struct hosts *hosts, int rank, const struct message *message)
{
    const struct hosts_about *about = &hosts->all[rank];
    for (int a = 0; a < HOSTS_ADDRESSES && about->addresses[a]; a++) {
        struct sockaddr_in to = {
                .sin_family = AF_INET,
                .sin_port = about->port,
                .sin_addr = {about->addresses[a]}};
        sendto(hosts->socket, message, HEAD_BYTES, 0, (struct sockaddr *)&to,
               sizeof to);
    }
}

/* --- answering ------------------------------------------------------------ */

static void tell(
        struct hosts *hosts, const struct sockaddr_in *to,
        const struct message *asked)
{
    struct message message;
    begin_message(hosts, TELL, &message);
    message.lane = asked->lane;
    message.asked = asked->asked;
    message.count = (uint32_t)hosts->calls->tell(
            hosts->calls->ctx, (enum seat_lane)asked->lane, message.told);
    sendto(hosts->socket, &message,
           HEAD_BYTES + message.count * sizeof(struct seat_told), 0,
           (const struct sockaddr *)to, sizeof *to);
}

static void take_answer(struct hosts *hosts, const struct message *message)
{
    const struct hosts_question *question = hosts->question;
    uint32_t seat = 0;
    if (!question || message->asked != hosts->asked)
        return;
    for (int r = 0; r < hosts->size && seat < message->count; r++)
        if (hosts->first[r] == (int)message->first) {
            question->told[r] = message->told[seat++];
            seat_told_check(&question->told[r]);
            question->heard[r] = true;
        }
}

static void look_once(struct hosts *hosts)
{
    struct message message;
    struct sockaddr_in from;
    if (!receive(hosts, &message, &from))
        return;
    if (message.kind == ASK)
        tell(hosts, &from, &message);
    else if (message.kind == TELL)
        take_answer(hosts, &message);
    else if (
            message.kind == OVER &&
            verdict_is_known(&message.verdict, hosts->size))
        hosts->calls->over(hosts->calls->ctx, &message.verdict);
}

void hosts_look(struct hosts *hosts, int ms)
{
    enum { MOST = 64 }; /* so that a flood leaves time for the watch */
    struct pollfd waits = {.fd = hosts->socket, .events = POLLIN};
    for (int i = 0; i < MOST && poll(&waits, 1, i ? 0 : ms) > 0; i++)
        look_once(hosts);
}

int hosts_socket(const struct hosts *hosts)
{
    return hosts->socket;
}

/* --- asking --------------------------------------------------------------- */

static bool is_first_of_other(const struct hosts *hosts, int rank)
{
    return hosts->first[rank] == rank && rank != hosts->first[hosts->rank];
}

/* The nth rank of a host, round and round. */
static int nth_of(const struct hosts *hosts, int first, int n)
{
    int count = 0;
    for (int r = first; r < hosts->size; r++)
        count += hosts->first[r] == first;
    n %= count;
    for (int r = first; r < hosts->size; r++)
        if (hosts->first[r] == first && n-- == 0)
            return r;
    return first;
}

static bool all_answered(const struct hosts *hosts)
{
    for (int r = 0; r < hosts->size; r++)
        if (is_first_of_other(hosts, r) && !hosts->question->heard[r])
            return false;
    return true;
}

static void send_questions(const struct hosts *hosts, int n)
{
    struct message message;
    begin_message(hosts, ASK, &message);
    message.lane = (uint32_t)hosts->question->lane;
    message.asked = hosts->asked;
    for (int r = 0; r < hosts->size; r++)
        if (is_first_of_other(hosts, r) && !hosts->question->heard[r])
            send_to_rank(hosts, nth_of(hosts, r, n), &message);
}

void hosts_ask(struct hosts *hosts, const struct hosts_question *question)
{
    double begun = clock_seconds();
    if (hosts->socket < 0)
        return;
    hosts->question = question;
    hosts->asked++;
    for (int n = 0;
         !all_answered(hosts) && clock_seconds() - begun < ASK_SECONDS; n++) {
        double sent = clock_seconds();
        send_questions(hosts, n);
        while (!all_answered(hosts) &&
               1000 * (clock_seconds() - sent) < AGAIN_MS) {
            hosts_look(hosts, AGAIN_MS / 4);
            hosts->calls->alive(hosts->calls->ctx);
        }
    }
    hosts->question = NULL;
}

void hosts_tell_over(struct hosts *hosts, const struct verdict *verdict)
{
    struct message message;
    if (hosts->socket < 0)
        return;
    begin_message(hosts, OVER, &message);
    message.verdict = *verdict;
    for (int i = 0; i < OVER_TIMES; i++)
        for (int r = 0; r < hosts->size; r++)
            if (hosts->first[r] != hosts->first[hosts->rank])
                send_to_rank(hosts, r, &message);
}

/* --- life ----------------------------------------------------------------- */

struct hosts *hosts_create(int size)
{
    struct hosts *hosts = zd_must(calloc(1, sizeof *hosts));
    hosts->size = size;
    hosts->socket = -1;
    hosts->all = zd_must(calloc((size_t)size, sizeof *hosts->all));
    return hosts;
}

void hosts_open(
        struct hosts *hosts, int rank, const int *first,
        const struct hosts_calls *calls, struct hosts_about *mine)
{
    hosts->rank = rank;
    hosts->first = first;
    hosts->calls = calls;
    memset(mine, 0, sizeof *mine);
    find_addresses(mine->addresses);
    hosts->opened = open_socket(&mine->port);
    /* without a secret or a socket no one can be asked */
    if (getrandom(mine->token, HOSTS_TOKEN_BYTES, 0) != HOSTS_TOKEN_BYTES ||
        hosts->opened < 0)
        mine->addresses[0] = 0;
    /* nor is an answer to another rank's question one */
    memcpy(&hosts->asked, mine->token, sizeof hosts->asked);
}

struct hosts_about *hosts_all(struct hosts *hosts)
{
    return hosts->all;
}

void hosts_join(struct hosts *hosts, bool has_all)
{
    if (has_all && hosts->all[0].addresses[0] != 0)
        hosts->socket = hosts->opened;
    else if (hosts->opened >= 0)
        close(hosts->opened);
}

bool hosts_are_open(const struct hosts *hosts)
{
    return hosts->socket >= 0;
}

void hosts_destroy(struct hosts *hosts)
{
    if (!hosts)
        return;
    if (hosts->socket >= 0)
        close(hosts->socket);
    free(hosts->all);
    free(hosts);
}
