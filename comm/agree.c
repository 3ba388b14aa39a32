#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    int32_t status;
    int32_t has_record;
    struct zd_error error;
};

static bool same_record(const struct zd_error *a, const struct zd_error *b)
{
    return a->status == b->status && strcmp(a->code, b->code) == 0 &&
           strcmp(a->what, b->what) == 0 && strcmp(a->where, b->where) == 0;
}

/* Who tells: the lowest rank that knows a cause. A rank that only lost its peer
 * saw a symptom; one without a record has told already, or was told. -1: all is
 * well. */
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

/* "rank 2", "ranks 0-3, 5": those whose record is the teller's. */
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
            !same_record(&reports[r].error, &reports[teller].error))
            continue;
        while (last + 1 < size && reports[last + 1].has_record &&
               same_record(&reports[last + 1].error, &reports[teller].error))
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
    struct zd_error error = reports[teller].error;
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
    if (size == 1)
        return mine;
    /* the common case is one small message */
    int32_t status = (int32_t)mine;
    int32_t *all = malloc((size_t)size * sizeof *all);
    if (!all)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    enum zd_status result = comm_gather_all(comm, &status, sizeof status, all);
    for (int r = 0; r < size; r++)
        worst |= all[r];
    free(all);
    if (result != ZD_OK || worst == ZD_OK)
        return result;

    struct report own = {
            .status = status,
            .has_record = zd_error_get()->status != ZD_OK,
            .error = *zd_error_get()};
    struct report *reports = malloc((size_t)size * sizeof *reports);
    if (!reports)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "out of memory");
    result = comm_gather_all(comm, &own, sizeof own, reports);
    if (result == ZD_OK) {
        int teller = find_teller(reports, size);
        if (teller == comm_rank(comm))
            append_ranks(reports, size, teller);
        else
            zd_error_clear();
        result = (enum zd_status)reports[teller].status;
    }
    free(reports);
    return result;
}
