/* Datagrams between processes: which are taken, and that no others change
 * anything. Two ranks, and a wire between them that does what it likes. */
#include "base/must.h"
#include "comm/watch/private.h"
#include "tests/support/must.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 2, NUMBER = 7, LARGEST = 65536 };

struct datagram {
    unsigned char bytes[LARGEST];
    size_t count;
};

static struct watch *host[RANKS];
static int wire;    /* what one sends to the other comes here */
static int answers; /* that came */
static atomic_bool is_asking;
static void (*carry)(int to, const struct datagram *datagram);
static struct datagram last[RANKS]; /* that went to a host */

static const struct verdict END = {
        .rank = 1, .exit_code = 75, .writer = -1, .seconds = 12};

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = port,
            .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* It is there when this returns, and looked at: by who asks, if it is that. */
static void deliver(int to, const struct datagram *datagram)
{
    struct sockaddr_in address = loopback(host[to]->about[to].port);
    cr_assert_eq(
            sendto(wire, datagram->bytes, datagram->count, 0,
                   (struct sockaddr *)&address, sizeof address),
            (ssize_t)datagram->count);
    if (to > 0 || !is_asking)
        peers_look(host[to]->peers, 0);
}

/* What has come to the wire. */
static void carry_all(void)
{
    static struct datagram datagram;
    struct sockaddr_in from;
    socklen_t bytes = sizeof from;
    ssize_t got;
    while ((got = recvfrom(
                    wire, datagram.bytes, LARGEST, MSG_DONTWAIT,
                    (struct sockaddr *)&from, &bytes)) >= 0) {
        int to = from.sin_port == host[0]->about[0].port;
        answers += to == 0;
        datagram.count = (size_t)got;
        last[to] = datagram;
        carry(to, &datagram);
    }
}

static void *carry_on(void *ctx)
{
    struct pollfd waits = {.fd = wire, .events = POLLIN};
    (void)ctx;
    while (is_asking) {
        poll(&waits, 1, 5);
        carry_all();
    }
    return NULL;
}

static struct watch *open_host(int rank)
{
    const struct watch_facts facts = {0};
    struct watch *watch;
    MUST(watch_create(&facts, 1, &watch));
    watch->rank = rank;
    watch->size = RANKS;
    watch->about = zd_array(RANKS, sizeof *watch->about);
    watch->ranks = zd_array(RANKS, sizeof *watch->ranks);
    watch->peers = peers_open(watch, true, &watch->about[rank]);
    watch->about[rank].host[0] = (char)('a' + rank);
    watch->seats->begun[LANE_MESSAGES] = NUMBER;
    watch->seats->done[LANE_MESSAGES] = NUMBER - 1;
    watch->seats->state = SEAT_WORKS;
    return watch;
}

/* The two of a job, with a wire in between. */
static void open_peers(void)
{
    struct sockaddr_in any = loopback(0);
    socklen_t bytes = sizeof any;
    wire = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert_eq(bind(wire, (struct sockaddr *)&any, sizeof any), 0);
    cr_assert_eq(getsockname(wire, (struct sockaddr *)&any, &bytes), 0);
    for (int r = 0; r < RANKS; r++)
        host[r] = open_host(r);
    for (int r = 0; r < RANKS; r++) {
        struct peer_about *other = &host[r]->about[1 - r];
        *other = host[1 - r]->about[1 - r];
        other->port = any.sin_port;
        memset(other->addresses, 0, sizeof other->addresses);
        other->addresses[0] = htonl(INADDR_LOOPBACK);
        cr_assert_geq(peers_socket(host[r]->peers), 0);
    }
}

static void destroy_peers(void)
{
    for (int r = 0; r < RANKS; r++)
        watch_destroy(host[r]);
    close(wire);
}

/* Rank 0 asks the other: does it hear? */
static bool ask(void (*on_the_way)(int to, const struct datagram *datagram))
{
    pthread_t carrier;
    host[0]->ranks[1].heard = false;
    carry = on_the_way;
    is_asking = true;
    cr_assert_eq(pthread_create(&carrier, NULL, carry_on, NULL), 0);
    peers_ask(host[0]->peers);
    is_asking = false;
    pthread_join(carrier, NULL);
    return host[0]->ranks[1].heard;
}

static void end(void (*on_the_way)(int to, const struct datagram *datagram))
{
    carry = on_the_way;
    peers_tell_over(host[0]->peers, &END, false);
    carry_all();
}

static void forget(int to, const struct datagram *datagram)
{
    (void)to, (void)datagram;
}

TestSuite(peers, .timeout = 60, .init = open_peers, .fini = destroy_peers);

Test(peers, a_whole_datagram_is_accepted)
{
    const struct seat_told *told = &host[0]->ranks[1].told;
    cr_expect(ask(deliver));
    cr_expect_gt(answers, 0);
    cr_expect_eq(told->begun[LANE_MESSAGES], NUMBER);
    cr_expect_eq(told->done[LANE_MESSAGES], NUMBER - 1);
    cr_expect_eq(told->state, SEAT_WORKS);
    end(deliver);
    cr_expect(host[1]->has_heard);
    cr_expect_eq(host[1]->heard.rank, END.rank);
}

/* --- of another secret, torn, old ----------------------------------------- */

/* Each bit of the secret is another one. */
static void change_secret(int to, const struct datagram *datagram)
{
    static struct datagram other;
    for (int bit = 0; bit < 8 * PEERS_TOKEN_BYTES; bit++) {
        other = *datagram;
        other.bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        deliver(to, &other);
    }
}

/* What the ranks of another job send, at the ports of this one. */
Test(peers, datagrams_of_another_job_are_ignored)
{
    static struct datagram asks, replies, tells_end;
    struct watch *our[RANKS] = {host[0], host[1]};
    int our_wire = wire;
    open_peers();
    cr_assert(ask(deliver));
    asks = last[1];
    replies = last[0];
    end(deliver);
    tells_end = last[1];
    destroy_peers();
    memcpy(host, our, sizeof our);
    wire = our_wire;
    answers = 0;
    for (int to = 0; to < RANKS; to++) {
        deliver(to, &asks);
        deliver(to, &replies);
        deliver(to, &tells_end);
    }
    carry = forget;
    carry_all();
    cr_expect_eq(answers, 0);
    cr_expect_not(host[0]->has_heard || host[1]->has_heard);
}

static void tear(int to, const struct datagram *datagram)
{
    static struct datagram part;
    part = *datagram;
    for (part.count = 0; part.count < datagram->count; part.count++)
        deliver(to, &part);
}

static void (*change)(int to, const struct datagram *datagram);

static void change_answers(int to, const struct datagram *datagram)
{
    (to == 0 ? change : deliver)(to, datagram);
}

Test(peers, a_wrong_secret_or_a_torn_datagram_changes_nothing)
{
    static void (*const all[])(int, const struct datagram *) = {
            change_secret, tear};
    for (int i = 0; i < 2; i++) {
        change = all[i];
        answers = 0;
        cr_expect_not(ask(change), "a question, %d", i);
        cr_expect_eq(answers, 0);
        end(change);
        cr_expect_not(host[1]->has_heard);
        cr_expect_not(ask(change_answers), "an answer, %d", i);
        cr_expect_gt(answers, 0);
    }
}

static struct datagram old;

static void answer_with_old(int to, const struct datagram *datagram)
{
    (void)datagram;
    if (to == 1)
        deliver(0, &old);
}

/* It would make a rank that is gone one that answers. */
Test(peers, answers_to_earlier_queries_are_ignored)
{
    cr_assert(ask(deliver));
    old = last[0];
    cr_expect_not(ask(answer_with_old));
    cr_expect(ask(deliver));
}
