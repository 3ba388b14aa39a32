#include "comm/nccl/hosts.h"

#include "base/clock.h"
#include "base/threads.h"
#include "comm/topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 4, TOKEN_BYTES = 16, ASK = 1, TELL };
static const double ASK_SECONDS = 1;
static const int AGAIN_MS = 100; /* datagrams get lost */

struct about {                        /* of a rank, as all get it */
    unsigned char token[TOKEN_BYTES]; /* rank 0's holds */
    uint32_t addresses[ADDRESSES];    /* network byte order; 0: none */
    uint16_t port;
};

struct hosts {
    int size, rank, socket, stop;
    const struct topology *topology; /* borrowed */
    struct about *all;               /* (size) */
    const struct seat *seats;        /* borrowed; NULL: nothing to tell */
    pthread_t thread;
    bool answers;
};

struct message {
    unsigned char token[TOKEN_BYTES];
    uint32_t kind, first, count; /* first: first rank of the host that tells */
    uint64_t number;             /* that is asked for */
    struct told {
        uint64_t begun, done, what;
    } seats[HOSTS_SEATS_MAX];
};
static const size_t HEAD_BYTES = offsetof(struct message, seats);

/* The lowest rank of its host. */
static int first_of(const struct hosts *hosts, int rank)
{
    return hosts->topology->ranks[rank].first;
}

/* --- addresses ------------------------------------------------------------ */

/* Those of this host's interfaces; the loopback's only where there are no
 * others. */
static void find_addresses(uint32_t *addresses)
{
    struct ifaddrs *list;
    int count = 0;
    if (getifaddrs(&list) == 0) {
        for (struct ifaddrs *i = list; i && count < ADDRESSES; i = i->ifa_next)
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
        const struct hosts *hosts, int fd, struct message *message,
        struct sockaddr_in *from)
{
    socklen_t bytes = sizeof *from;
    ssize_t got = recvfrom(
            fd, message, sizeof *message, 0, (struct sockaddr *)from, &bytes);
    return got >= (ssize_t)HEAD_BYTES &&
           memcmp(message->token, hosts->all[0].token, TOKEN_BYTES) == 0 &&
           message->count <= HOSTS_SEATS_MAX &&
           (size_t)got >= HEAD_BYTES + message->count * sizeof(struct told);
}

static struct message message_of(const struct hosts *hosts, uint32_t kind)
{
    struct message message = {
            .kind = kind, .first = (uint32_t)first_of(hosts, hosts->rank)};
    memcpy(message.token, hosts->all[0].token, TOKEN_BYTES);
    return message;
}

/* --- answering ------------------------------------------------------------ */

static void tell(
        struct hosts *hosts, const struct sockaddr_in *to, uint64_t number)
{
    struct message message = message_of(hosts, TELL);
    int own = first_of(hosts, hosts->rank);
    for (int r = 0; r < hosts->size && hosts->seats; r++)
        if (first_of(hosts, r) == own && message.count < HOSTS_SEATS_MAX) {
            const struct seat *seat = &hosts->seats[message.count];
            message.seats[message.count++] = (struct told){
                    atomic_load(&seat->begun), atomic_load(&seat->done),
                    seat_what(seat, number)};
        }
    sendto(hosts->socket, &message,
           HEAD_BYTES + message.count * sizeof(struct told), 0,
           (const struct sockaddr *)to, sizeof *to);
}

static void *answer(void *ctx)
{
    struct hosts *hosts = ctx;
    struct pollfd fds[] = {
            {.fd = hosts->socket, .events = POLLIN},
            {.fd = hosts->stop, .events = POLLIN}};
    struct message message;
    struct sockaddr_in from;
    while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
        if (fds[1].revents)
            break;
        if (fds[0].revents && receive(hosts, hosts->socket, &message, &from) &&
            message.kind == ASK)
            tell(hosts, &from, message.number);
    }
    return NULL;
}

/* --- asking --------------------------------------------------------------- */

static void send_questions(
        const struct hosts *hosts, int fd,
        const struct hosts_question *question)
{
    struct message message = message_of(hosts, ASK);
    message.number = question->number;
    for (int r = 0; r < hosts->size; r++) {
        const struct about *about = &hosts->all[r];
        if (first_of(hosts, r) != r || r == first_of(hosts, hosts->rank) ||
            question->has_answered[r])
            continue;
        for (int a = 0; a < ADDRESSES && about->addresses[a]; a++) {
            struct sockaddr_in to = {
                    .sin_family = AF_INET,
                    .sin_port = about->port,
                    .sin_addr = {about->addresses[a]}};
            sendto(fd, &message, HEAD_BYTES, 0, (struct sockaddr *)&to,
                   sizeof to);
        }
    }
}

static void take_answer(
        const struct hosts *hosts, const struct message *message,
        const struct hosts_question *question)
{
    uint32_t seat = 0;
    for (int r = 0; r < hosts->size && seat < message->count; r++)
        if (first_of(hosts, r) == (int)message->first) {
            question->begun[r] = message->seats[seat].begun;
            question->done[r] = message->seats[seat].done;
            uint64_t what = message->seats[seat++].what;
            question->what[r] = seat_word_is_known(what) ? what : 0;
            question->has_answered[r] = true;
        }
}

static bool all_answered(
        const struct hosts *hosts, const struct hosts_question *question)
{
    for (int r = 0; r < hosts->size; r++)
        if (first_of(hosts, r) != first_of(hosts, hosts->rank) &&
            first_of(hosts, r) == r && !question->has_answered[r])
            return false;
    return true;
}

void hosts_ask(struct hosts *hosts, const struct hosts_question *question)
{
    uint16_t port;
    bool has_secret = hosts->all[0].addresses[0] != 0;
    int fd = has_secret ? open_socket(&port) : -1;
    double begun = clock_seconds();
    if (fd < 0)
        return;
    while (!all_answered(hosts, question) &&
           clock_seconds() - begun < ASK_SECONDS) {
        struct pollfd waits = {.fd = fd, .events = POLLIN};
        struct message message;
        struct sockaddr_in from;
        send_questions(hosts, fd, question);
        while (!all_answered(hosts, question) && poll(&waits, 1, AGAIN_MS) > 0)
            if (receive(hosts, fd, &message, &from) && message.kind == TELL)
                take_answer(hosts, &message, question);
    }
    close(fd);
}

/* --- life ----------------------------------------------------------------- */

static enum zd_status exchange(struct hosts *hosts, struct comm *control)
{
    struct about mine = {0};
    void *all;
    find_addresses(mine.addresses);
    hosts->socket = open_socket(&mine.port);
    /* without a secret or a socket nobody can be asked */
    if (getrandom(mine.token, TOKEN_BYTES, 0) != TOKEN_BYTES ||
        hosts->socket < 0)
        mine.addresses[0] = 0;
    ZD_TRY(comm_gather_new(control, &mine, sizeof mine, &all));
    hosts->all = all;
    return ZD_OK;
}

/* The first rank of a host answers for it. */
static void start_answering(struct hosts *hosts)
{
    bool has_secret = hosts->all[0].addresses[0] != 0;
    if (first_of(hosts, hosts->rank) != hosts->rank || hosts->socket < 0 ||
        !has_secret)
        return;
    hosts->stop = eventfd(0, EFD_CLOEXEC);
    hosts->answers =
            hosts->stop >= 0 &&
            thread_start(&hosts->thread, "zerod-hosts", answer, hosts) == 0;
}

static bool are_several(const struct topology *topology)
{
    for (int r = 1; r < topology->size; r++)
        if (!topology_same_host(topology, 0, r))
            return true;
    return false;
}

enum zd_status hosts_create(
        struct comm *control, const struct seat *seats,
        struct hosts **hosts_out)
{
    *hosts_out = NULL;
    if (!are_several(control->topology))
        return ZD_OK;
    struct hosts *hosts = calloc(1, sizeof *hosts);
    enum zd_status status = ZD_OK;
    if (!hosts)
        status = ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    status = comm_agree(control, status);
    if (status == ZD_OK) {
        *hosts = (struct hosts){
                .size = comm_size(control),
                .rank = comm_rank(control),
                .socket = -1,
                .stop = -1,
                .topology = control->topology,
                .seats = seats};
        status = exchange(hosts, control);
    }
    if (status != ZD_OK) {
        hosts_destroy(hosts);
        return status;
    }
    start_answering(hosts);
    *hosts_out = hosts;
    return ZD_OK;
}

void hosts_destroy(struct hosts *hosts)
{
    if (!hosts)
        return;
    if (hosts->answers) {
        uint64_t one = 1;
        if (write(hosts->stop, &one, sizeof one) == sizeof one)
            pthread_join(hosts->thread, NULL);
    }
    if (hosts->stop >= 0)
        close(hosts->stop);
    if (hosts->socket >= 0)
        close(hosts->socket);
    free(hosts->all);
    free(hosts);
}
