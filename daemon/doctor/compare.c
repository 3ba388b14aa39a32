/* compare.c - what the other ranks found. What ranks must have alike, or would
 * better have, is compared with rank 0's. */
#include "daemon/doctor/doctor.h"

#include "base/must.h"

#include <stdlib.h>
#include <string.h>

/* As text, so that all kinds compare alike; owned. "-": it has none. */
static char *value_of(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value))
        return zd_must(strdup("-"));
    if (json_is_string(value))
        return zd_must(strdup(json_string_value(value)));
    return zd_must(json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT));
}

static void compare_one(
        json_t *differences, int rank, const char *what, const json_t *first,
        const json_t *other, const char *name)
{
    char *a = value_of(first, name), *b = value_of(other, name);
    if (strcmp(a, b) != 0)
        json_array_append_new(
                differences, json_pack(
                                     "{s:s, s:i, s:s, s:s}", "what", what,
                                     "rank", rank, "rank_0", a, "there", b));
    free(a);
    free(b);
}

static void compare_libraries(
        json_t *differences, int rank, const json_t *mine, const json_t *theirs)
{
    const json_t *first = json_object_get(mine, "libraries");
    const json_t *other = json_object_get(theirs, "libraries");
    for (size_t i = 0; i < json_array_size(first); i++) {
        const json_t *library = json_array_get(first, i);
        compare_one(
                differences, rank,
                json_string_value(json_object_get(library, "name")), library,
                json_array_get(other, i), "version");
    }
}

static void compare_reports(
        json_t *differences, int rank, const json_t *mine, const json_t *theirs)
{
    static const struct {
        const char *what, *object, *name;
    } alike[] = {
            {"kernel", "host", "kernel"},
            {"CPUs", "host", "cpus"},
            {"CPUs that it may use", "host", "cpus_allowed"},
            {"driver", NULL, "driver_cuda"},
            {"MPI", NULL, "mpi"},
            {"GPU", "gpu", "name"},
            {"lockable memory", "limits", "memlock_bytes"},
            {"io_uring", "limits", "io_uring"},
    };
    for (size_t i = 0; i < sizeof alike / sizeof alike[0]; i++) {
        const char *object = alike[i].object;
        compare_one(
                differences, rank, alike[i].what,
                object ? json_object_get(mine, object) : mine,
                object ? json_object_get(theirs, object) : theirs,
                alike[i].name);
    }
    compare_libraries(differences, rank, mine, theirs);
}

/* What another rank found and rank 0 did not, with its rank. */
static void take_findings(json_t *report, int rank, const json_t *theirs)
{
    json_t *mine = json_object_get(report, "findings");
    const json_t *others = json_object_get(theirs, "findings");
    for (size_t i = 0; i < json_array_size(others); i++) {
        json_t *finding = json_array_get(others, i);
        const char *what = json_string_value(json_object_get(finding, "what"));
        bool known = false;
        for (size_t j = 0; j < json_array_size(mine); j++)
            known |= strcmp(what, json_string_value(json_object_get(
                                          json_array_get(mine, j), "what"))) ==
                     0;
        if (known)
            continue;
        json_object_set_new(finding, "rank", json_integer(rank));
        json_array_append(mine, finding);
    }
}

/* Every rank's report as text, one after the other, each `bytes` long. */
static enum zd_status gather(
        struct comm *comm, const json_t *report, char **all_out,
        size_t *bytes_out)
{
    char *text = zd_must(json_dumps(report, JSON_COMPACT));
    int64_t most = (int64_t)strlen(text) + 1;
    enum zd_status status = comm_all_reduce_i64(comm, &most, 1, COMM_MAX);
    if (status == ZD_OK) {
        char *mine = zd_must(calloc(1, (size_t)most));
        void *all;
        memcpy(mine, text, strlen(text));
        status = comm_gather_new(comm, mine, (size_t)most, &all);
        free(mine);
        *all_out = all;
        *bytes_out = (size_t)most;
    }
    free(text);
    return status;
}

static void tell_stops(struct doctor *doctor)
{
    const json_t *findings = json_object_get(doctor->report, "findings");
    bool stops = false;
    for (size_t i = 0; i < json_array_size(findings); i++)
        stops |= strcmp(json_string_value(json_object_get(
                                json_array_get(findings, i), "level")),
                        "stop") == 0;
    doctor_put(doctor, "stops", json_boolean(stops));
}

enum zd_status doctor_compare(struct doctor *doctor, struct comm *comm)
{
    char *all;
    size_t bytes;
    json_t *differences = json_array();
    ZD_TRY(gather(comm, doctor->report, &all, &bytes));
    for (int rank = 0; rank < comm_size(comm); rank++) {
        json_t *theirs;
        if (rank == comm_rank(comm) ||
            json_parse(
                    all + (size_t)rank * bytes,
                    strlen(all + (size_t)rank * bytes), "report", ZD_ERR_PEER,
                    &theirs) != ZD_OK)
            continue;
        compare_reports(differences, rank, doctor->report, theirs);
        take_findings(doctor->report, rank, theirs);
        json_decref(theirs);
    }
    free(all);
    doctor_put(doctor, "differences", differences);
    tell_stops(doctor);
    return ZD_OK;
}
