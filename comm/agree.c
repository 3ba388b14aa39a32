/* comm_agree does not allocate: the failure it settles may be out of memory. */
#include "base/must.h"
#include "comm/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report { /* of a rank */
    int32_t status;
    int32_t has_record;
    uint64_t record; /* equal for equal ones */
};
_Static_assert(
        sizeof(struct report) <= COMM_REDUCE_PIECE * 8,
        "one for each rank has room in reduce_scratch");

static uint64_t mix(uint64_t hash, const char *text)
{
    do /* FNV-1a, with the zero at the end */
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
    return hash;
}

static struct report report_of(enum zd_status status)
{
    const struct zd_error *error = zd_error_get();
    uint64_t hash = 14695981039346656037u ^ (uint64_t)error->status;
    hash = mix(mix(mix(hash, error->code), error->what), error->where);
    return (struct report){
            .status = (int32_t)status,
            .has_record = error->status != ZD_OK,
            .record = hash};
}

/* The rank that reports: the lowest one that knows a cause. A rank that only
 * lost its peer saw a symptom; one without a record has reported already, or
 * was told. -1: no failure. */
static int find_teller(const struct report *reports, int size)
{
    int teller = -1, best = 0;
    for (int r = 0; r < size; r++) {
        int knows = 0;
        if (reports[r].status != ZD_OK)
            knows = 1 + 2 * (reports[r].has_record != 0) +
                    (reports[r].status != ZD_ERR_PEER);
        if (knows > best) {
            best = knows;
            teller = r;
        }
    }
    return teller;
}

/* "rank 2", "ranks 0-3, 5": the ranks whose record equals the reporter's. */
static void name_ranks(
        const struct report *reports, int size, int teller, char *out,
        size_t out_bytes)
{
    char list[256] = "";
    size_t used = 0;
    int named = 0;
    for (int r = teller; r < size && used + 32 < sizeof list; r++) {
        int last = r;
        if (!reports[r].has_record ||
            reports[r].record != reports[teller].record)
            continue;
        while (last + 1 < size && reports[last + 1].has_record &&
               reports[last + 1].record == reports[teller].record)
            last++;
        used += (size_t)snprintf(
                list + used, sizeof list - used, last > r ? "%s%d-%d" : "%s%d",
                named ? ", " : "", r, last);
        named += last - r + 1;
        r = last;
    }
    snprintf(out, out_bytes, "%s %s", named > 1 ? "ranks" : "rank", list);
}

static void append_ranks(const struct report *reports, int size, int teller)
{
    struct zd_error error = *zd_error_get(); /* the teller's: this rank's */
    char ranks[300];
    size_t used = strlen(error.where);
    /* A failing rank without a record: this was settled before, and the record
     * already says who. */
    for (int r = 0; r < size; r++)
        if (reports[r].status != ZD_OK && !reports[r].has_record)
            return;
    name_ranks(reports, size, teller, ranks, sizeof ranks);
    snprintf(
            error.where + used, sizeof error.where - used,
            used ? " (%s)" : "%s", ranks);
    zd_error_set(&error);
}

enum zd_status comm_agree(struct comm *comm, enum zd_status mine)
{
    int size = comm_size(comm);
    int64_t worst = mine;
    /* the common case is one small message */
    int32_t status = (int32_t)mine;
    int32_t *all = comm->reduce_scratch;
    ZD_TRY(comm_gather_all(comm, &status, sizeof status, all));
    for (int r = 0; r < size; r++)
        worst |= all[r];
    if (worst == ZD_OK || size == 1)
        return mine;

    struct report own = report_of(mine);
    struct report *reports = comm->reduce_scratch;
    ZD_TRY(comm_gather_again(comm, &own, sizeof own, reports));
    int teller = find_teller(reports, size);
    if (teller == comm_rank(comm))
        append_ranks(reports, size, teller);
    else
        zd_error_clear();
    return (enum zd_status)reports[teller].status;
}

enum zd_status comm_gather_new(
        struct comm *comm, const void *mine, size_t bytes, void **all_out)
{
    ZD_FREED void *all = zd_must(malloc((size_t)comm_size(comm) * bytes));
    ZD_TRY(comm_gather_all(comm, mine, bytes, all));
    *all_out = ZD_TAKE(all);
    return ZD_OK;
}
