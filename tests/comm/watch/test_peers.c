/* Datagrams between processes: which are taken, and that no others change
 * anything. Two ranks, and a wire between them that does what it likes. */
#include "comm/watch/peers.h"
#include "comm/watch/watch.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 2, NUMBER = 7, LARGEST = 65536 };

struct datagram {
    unsigned char bytes[LARGEST];
    size_t count;
};

static struct peers *host[RANKS];
static struct peer_about about[RANKS];
static struct peers_calls calls[RANKS];
static int wire; /* what one sends to the other comes here */
static const char names[RANKS][WATCH_HOST_MAX] = {"a", "b"};
static int questions, ends; /* that were taken */
static void (*carry)(int to, const struct datagram *datagram);
static struct datagram last[RANKS]; /* that went to a host */
static struct seat_told told[RANKS];
static bool heard[RANKS];

static const struct verdict END = {
        .rank = 1, .exit_code = 75, .writer = -1, .seconds = 12};

static struct seat_told tell_one(void *ctx)
{
    (void)ctx;
    questions++;
    return (struct seat_told){
            .begun = {0, NUMBER}, .done = {0, 6}, .state = SEAT_WORKS};
}

static void take_written(void *ctx)
{
    (void)ctx;
}

static void take_end(void *ctx, const struct verdict *verdict)
{
    (void)ctx;
    cr_assert(verdict->rank >= 0 && verdict->rank < RANKS);
    cr_assert(verdict->writer >= -1 && verdict->writer < RANKS);
    cr_assert_lt(verdict->kind, ENDS);
    cr_assert(isfinite(verdict->seconds));
    ends++;
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
            .sin_family = AF_INET,
            .sin_port = port,
            .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

/* It is there when this returns, and looked at. */
static void deliver(int to, const struct datagram *datagram)
{
    struct sockaddr_in address = loopback(about[to].port);
    cr_assert_eq(
            sendto(wire, datagram->bytes, datagram->count, 0,
                   (struct sockaddr *)&address, sizeof address),
            (ssize_t)datagram->count);
    peers_look(host[to], 0);
}

/* What has come to the wire. */
static void carry_all(void *ctx)
{
    static struct datagram datagram;
    struct sockaddr_in from;
    socklen_t bytes = sizeof from;
    ssize_t got;
    (void)ctx;
    while ((got = recvfrom(
                    wire, datagram.bytes, LARGEST, MSG_DONTWAIT,
                    (struct sockaddr *)&from, &bytes)) >= 0) {
        int to = from.sin_port == about[0].port;
        datagram.count = (size_t)got;
        last[to] = datagram;
        carry(to, &datagram);
    }
}

/* The two of a job, with a wire in between. */
static void open_peers(void)
{
    struct sockaddr_in any = loopback(0);
    socklen_t bytes = sizeof any;
    wire = socket(AF_INET, SOCK_DGRAM, 0);
    cr_assert_eq(bind(wire, (struct sockaddr *)&any, sizeof any), 0);
    cr_assert_eq(getsockname(wire, (struct sockaddr *)&any, &bytes), 0);
    for (int r = 0; r < RANKS; r++) {
        calls[r] = (struct peers_calls){
                .tell = tell_one,
                .over = take_end,
                .written = take_written,
                .alive = carry_all};
        host[r] = peers_open(r, RANKS, names[0], true, &calls[r], &about[r]);
    }
    for (int r = 0; r < RANKS; r++) {
        struct peer_about *all = peers_all(host[r]);
        memcpy(all, about, sizeof about);
        all[1 - r].port = any.sin_port;
        memset(all[1 - r].addresses, 0, sizeof all[1 - r].addresses);
        all[1 - r].addresses[0] = htonl(INADDR_LOOPBACK);
        cr_assert_geq(peers_socket(host[r]), 0);
    }
}

static void destroy_peers(void)
{
    for (int r = 0; r < RANKS; r++)
        peers_destroy(host[r]);
    close(wire);
}

/* Rank 0 asks the other: does it hear? */
static bool ask(void (*on_the_way)(int to, const struct datagram *datagram))
{
    memset(heard, 0, sizeof heard);
    carry = on_the_way;
    peers_ask(host[0], told, heard);
    return heard[1];
}

static void end(void (*on_the_way)(int to, const struct datagram *datagram))
{
    carry = on_the_way;
    peers_tell_over(host[0], &END, false);
    carry_all(NULL);
}

TestSuite(peers, .timeout = 60, .init = open_peers, .fini = destroy_peers);

Test(peers, a_whole_datagram_is_accepted)
{
    cr_expect(ask(deliver));
    cr_expect_eq(questions, 1);
    cr_expect_eq(told[1].begun[LANE_MESSAGES], NUMBER);
    cr_expect_eq(told[1].done[LANE_MESSAGES], 6);
    cr_expect_eq(told[1].state, SEAT_WORKS);
    end(deliver);
    cr_expect_gt(ends, 0);
}

/* --- of another secret, torn, old, wild ----------------------------------- */

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
    static struct datagram asks, answers, tells_end;
    struct peer_about theirs[RANKS];
    struct peers *our[RANKS] = {host[0], host[1]};
    int our_wire = wire;
    memcpy(theirs, about, sizeof about);
    open_peers();
    cr_assert(ask(deliver));
    asks = last[1];
    answers = last[0];
    end(deliver);
    tells_end = last[1];
    destroy_peers();
    memcpy(about, theirs, sizeof about);
    memcpy(host, our, sizeof our);
    wire = our_wire;
    questions = ends = 0;
    for (int to = 0; to < RANKS; to++) {
        deliver(to, &asks);
        deliver(to, &answers);
        deliver(to, &tells_end);
    }
    cr_expect_eq(questions, 0);
    cr_expect_eq(ends, 0);
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
        questions = ends = 0;
        cr_expect_not(ask(change), "a question, %d", i);
        cr_expect_eq(questions, 0);
        end(change);
        cr_expect_eq(ends, 0);
        cr_expect_not(ask(change_answers), "an answer, %d", i);
        cr_expect_gt(questions, 0);
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

static void check_told(void)
{
    cr_assert_lt(told[1].state, SEAT_STATES);
    cr_assert_lt(told[1].work, WORKS);
    const struct seat_op *op = &told[1].waits;
    cr_assert(op->word == 0 || seat_word_is_known(op->word));
    cr_assert_lt(op->lane, SEAT_LANES);
    cr_assert(
            op->count == 0 || op->first + op->stride * (op->count - 1) < RANKS);
}

/* With the secret, but all else may be anything. */
static void make_wild(int to, const struct datagram *datagram)
{
    enum { TIMES = 4000 };
    static struct datagram whole, wild;
    static unsigned seed = 1;
    whole = *datagram; /* answers come over the same wire */
    for (int i = 0; i < TIMES; i++) {
        wild = whole;
        for (int n = rand_r(&seed) % 8; n >= 0; n--) {
            size_t rest = wild.count - PEERS_TOKEN_BYTES;
            size_t at = PEERS_TOKEN_BYTES + (size_t)rand_r(&seed) % rest;
            wild.bytes[at] = (unsigned char)rand_r(&seed);
        }
        if (rand_r(&seed) % 4 == 0)
            wild.count += (size_t)rand_r(&seed) % (LARGEST / 4);
        deliver(to, &wild);
        carry_all(NULL);
        check_told();
    }
}

static void forget(int to, const struct datagram *datagram)
{
    (void)to, (void)datagram;
}

static void make_wild_once(int to, const struct datagram *datagram)
{
    carry = forget;
    make_wild(to, datagram);
    carry = make_wild_once;
}

static void make_answer_wild_once(int to, const struct datagram *datagram)
{
    (to == 0 ? make_wild_once : deliver)(to, datagram);
}

Test(peers, a_random_datagram_gives_no_invalid_value)
{
    ask(make_wild_once);
    ask(make_answer_wild_once);
    end(make_wild_once);
    cr_expect_gt(questions, 0);
    cr_expect_gt(ends, 0);
}
