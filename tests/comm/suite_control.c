/* Cases of the suite: scalars, control messages, failures. */
#include "base/device/device.h"
#include "base/number/exact_sum.h"
#include "comm/topology.h"
#include "tests/comm/suite_cases.h"
#include "tests/comm/suite_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranks of one process, or of processes of one machine; nodes of a test are
 * hosts. */
bool case_who_is_where_is_known(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    int node_size = comm_mesh(comm).node;
    bool holds = true;
    if (!comm_topology(comm)) {
        if (comm_transport(comm) != COMM_TRANSPORT_HOST)
            return true; /* the control's comm would have it */
        holds &= CHECK(comm, topology_make(comm) == ZD_OK);
    }
    const struct topology *all = comm_topology(comm);
    holds &= CHECK(comm, all->size == size);
    holds &= CHECK(comm, all->ranks[rank].pid == (int)getpid());
    for (int r = 0; r < size; r++) {
        const struct topology_rank *one = &all->ranks[r];
        holds &= CHECK(comm, one->first == r / node_size * node_size);
        holds &=
                CHECK(comm, topology_same_host(all, r, rank) ==
                                    (one->first == all->ranks[rank].first));
        holds &=
                CHECK(comm, topology_sharers(all, r) ==
                                    (one->backend == DEVICE_CUDA ? 1 : 0));
    }
    size_t bytes = strlen(comm_host(comm));
    return holds & CHECK(comm, strncmp(all->ranks[rank].host, comm_host(comm),
                                       bytes) == 0);
}

static int64_t integer_of(int rank, size_t i)
{
    return (int64_t)((uint64_t)(i + 1) * (uint64_t)(rank + 3) * 0x9e3779b97f4a7c15u);
}

static bool reduces(struct comm *comm, size_t count, enum comm_reduction how)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    int64_t *whole = malloc((count + 1) * sizeof *whole);
    uint64_t sent = comm_counters(comm).bytes[COMM_ALL_REDUCE];
    for (size_t i = 0; i <= count; i++)
        whole[i] = integer_of(rank, i);
    bool holds =
            CHECK(comm, comm_all_reduce_i64(comm, whole, count, how) == ZD_OK);
    for (size_t i = 0; i < count && holds; i++) {
        int64_t want = integer_of(0, i);
        for (int r = 1; r < size; r++) {
            int64_t n = integer_of(r, i);
            bool takes = how == COMM_MAX ? n > want : n < want;
            want = how == COMM_SUM ? (int64_t)((uint64_t)want + (uint64_t)n)
                   : takes         ? n
                                   : want;
        }
        holds &= CHECK(comm, whole[i] == want);
    }
    holds &= CHECK(comm, whole[count] == integer_of(rank, count));
    sent = comm_counters(comm).bytes[COMM_ALL_REDUCE] - sent;
    free(whole);
    return holds & CHECK(comm, sent == comm_all_reduce_bytes(size, count));
}

/* Scalars to every other rank; an array, whose last values are no multiple of
 * the ranks and whose parts take several pieces, twice. */
bool case_integers_are_reduced(struct comm *comm)
{
    static const size_t counts[] = {1, 128, 300, 512, 513, 1001};
    enum { MANY = (256 << 10) + 5 };
    int size = comm_size(comm);
    size_t peers = (size_t)size - 1;
    bool holds =
            CHECK(comm, comm_all_reduce_bytes(size, 300) == peers * 300 * 8);
    holds &=
            CHECK(comm, comm_all_reduce_bytes(size, MANY) <=
                                2 * MANY * 8 + peers * peers * 8);
    for (int how = COMM_SUM; how <= COMM_MIN; how++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            holds &= reduces(comm, counts[i], (enum comm_reduction)how);
    return holds & reduces(comm, MANY, COMM_SUM);
}

bool case_digits_of_an_exact_sum_add_up(struct comm *comm)
{
    enum { TERMS = 840 }; /* divides by 1 .. 8 */
    int size = comm_size(comm), rank = comm_rank(comm);
    struct exact_sum part = {0}, whole = {0};
    for (size_t i = 0; i < TERMS; i++) {
        double term = ldexp(data_value(0, i), (int)(i % 600) - 300);
        exact_sum_add(&whole, term);
        if ((int)i % size == rank)
            exact_sum_add(&part, term);
    }
    exact_sum_carry(&part);
    return CHECK(comm, comm_all_reduce_i64(
                               comm, part.digit, EXACT_SUM_DIGITS, COMM_SUM) ==
                               ZD_OK) &&
           CHECK(comm, exact_sum_value(&part) == exact_sum_value(&whole));
}

bool case_control_messages_arrive(struct comm *comm)
{
    enum { BYTES = 100003 };
    int size = comm_size(comm), rank = comm_rank(comm);
    char *data = malloc(BYTES), *all = malloc((size_t)size * BYTES);
    struct comm_counters before = comm_counters(comm);
    bool holds = true;
    for (int root = 0; root < size; root++) {
        memset(data, rank + 1, BYTES);
        holds &= CHECK(comm, comm_broadcast(comm, data, BYTES, root) == ZD_OK);
        holds &=
                CHECK(comm, data[0] == root + 1 && data[BYTES - 1] == root + 1);
    }
    for (size_t bytes = 1; bytes <= BYTES; bytes *= 47) {
        memset(data, 64 + rank, bytes);
        holds &= CHECK(comm, comm_gather_all(comm, data, bytes, all) == ZD_OK);
        for (int r = 0; r < size; r++)
            holds &= CHECK(
                    comm, all[(size_t)r * bytes] == 64 + r &&
                                  all[(size_t)(r + 1) * bytes - 1] == 64 + r);
        holds &= CHECK(comm, comm_barrier(comm) == ZD_OK);
    }
    struct comm_counters after = comm_counters(comm);
    holds &= CHECK(comm, memcmp(&before, &after, sizeof before) == 0);
    free(data);
    free(all);
    return holds;
}

bool case_ranks_know_their_places(struct comm *comm)
{
    int size = comm_size(comm);
    int64_t ranks = comm_rank(comm);
    return CHECK(comm,
                 comm_all_reduce_i64(comm, &ranks, 1, COMM_SUM) == ZD_OK) &&
           CHECK(comm, ranks == (int64_t)size * (size - 1) / 2) &&
           CHECK(comm, comm_local_size(comm) == size) &&
           CHECK(comm, comm_local_rank(comm) == comm_rank(comm)) &&
           CHECK(comm, comm_host(comm)[0] != '\0');
}

/* --- failures ------------------------------------------------------------- */

static enum zd_status agree_on(
        struct comm *comm, bool fails, enum zd_status status, const char *what)
{
    zd_error_clear();
    enum zd_status mine = ZD_OK;
    if (fails) {
        mine = ZD_FAIL(status, "E0999", "%s", what);
        zd_fail_where("file:1");
    }
    return comm_agree(comm, mine);
}

/* One rank has the error to tell, with its place; the others have none. */
static bool is_told_by(struct comm *comm, int teller, const char *where)
{
    const struct zd_error *error = zd_error_get();
    return comm_rank(comm) == teller ? strcmp(error->where, where) == 0
                                     : error->status == ZD_OK;
}

bool case_all_well_is_well(struct comm *comm)
{
    return CHECK(comm, agree_on(comm, false, ZD_OK, "") == ZD_OK);
}

bool case_one_failure_is_everyones(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    bool holds = true;
    for (int bad = 0; bad < size && size > 1; bad++) {
        char where[64];
        holds &= CHECK(
                comm, agree_on(comm, rank == bad, ZD_ERR_DATA, "broken") ==
                              ZD_ERR_DATA);
        ZD_PRINT(where, "file:1 (rank %d)", bad);
        holds &= CHECK(comm, is_told_by(comm, bad, where));
        /* settled again on the way out: the same */
        holds &= CHECK(comm, comm_agree(comm, ZD_ERR_DATA) == ZD_ERR_DATA);
        holds &= CHECK(comm, is_told_by(comm, bad, where));
    }
    zd_error_clear();
    return holds;
}

bool case_equal_failures_are_told_once(struct comm *comm)
{
    int size = comm_size(comm);
    char where[64];
    bool holds =
            CHECK(comm, agree_on(comm, true, ZD_ERR_CONFIG, "the same") ==
                                ZD_ERR_CONFIG);
    ZD_PRINT(where, "file:1 (ranks 0-%d)", size - 1);
    holds &= CHECK(comm, is_told_by(comm, 0, size > 1 ? where : "file:1"));
    zd_error_clear();
    return holds;
}

bool case_groups_of_ranks_are_named(struct comm *comm)
{
    int rank = comm_rank(comm);
    if (comm_size(comm) < 5)
        return true;
    /* 1, 2 and 4 of one mind; 0 well; 3 fails otherwise */
    const char *what = rank == 3 ? "other" : "same";
    enum zd_status status = rank == 3 ? ZD_ERR_DATA : ZD_ERR_IO;
    bool fails = rank >= 1 && rank <= 4;
    bool holds = CHECK(comm, agree_on(comm, fails, status, what) == ZD_ERR_IO);
    holds &= CHECK(comm, is_told_by(comm, 1, "file:1 (ranks 1-2, 4)"));
    zd_error_clear();
    return holds;
}

bool case_a_lost_peer_is_not_the_cause(struct comm *comm)
{
    int size = comm_size(comm), rank = comm_rank(comm);
    bool is_last = rank == size - 1;
    bool holds = CHECK(
            comm, agree_on(
                          comm, true, is_last ? ZD_ERR_IO : ZD_ERR_PEER,
                          is_last ? "disk full" : "lost a peer") == ZD_ERR_IO);
    if (is_last)
        holds &= CHECK(comm, strcmp(zd_error_get()->what, "disk full") == 0);
    else
        holds &= CHECK(comm, zd_error_get()->status == ZD_OK);
    zd_error_clear();
    return holds;
}
