/* compare.c - what the other ranks found. What ranks must have alike, or would
 * better have, is compared with rank 0's. */
#include "daemon/doctor/doctor.h"

#include "base/must.h"
#include "daemon/cli/fill.h"

#include <stdlib.h>
#include <string.h>

/* `template` (of fill.h) gives the value of each as text. */
static void compare_one(
        json_t *differences, int rank, const char *what, const char *template,
        const json_t *first, const json_t *other)
{
    const struct look plain = {.has_utf8 = true};
    char *a = fill(&plain, first, template), *b = fill(&plain, other, template);
    if (strcmp(a, b) != 0)
        json_array_append_new(
                differences, json_pack(
                                     "{s:s, s:i, s:s, s:s}", "what", what,
                                     "rank", rank, "rank_0", a, "there", b));
    free(a);
    free(b);
}

static void compare_reports(
        json_t *differences, int rank, const json_t *mine, const json_t *theirs)
{
    static const struct {
        const char *what, *template;
    } alike[] = {
            {"kernel", "{host.kernel|s}"},
            {"CPUs", "{host.cpus|w}"},
            {"CPUs that it may use", "{host.cpus_allowed|w}"},
            {"driver", "{driver_cuda|w}"},
            {"MPI", "{mpi|s}"},
            {"GPU", "{gpu.name|s}"},
            {"lockable memory", "{limits.memlock_bytes|w}"}};
    const json_t *others = json_object_get(theirs, "libraries");
    json_t *library;
    size_t i;
    for (i = 0; i < sizeof alike / sizeof alike[0]; i++)
        compare_one(
                differences, rank, alike[i].what, alike[i].template, mine,
                theirs);
    json_array_foreach(json_object_get(mine, "libraries"), i, library)
            compare_one(
                    differences, rank, json_text_of(library, "name", ""),
                    "{version|s}", library, json_array_get(others, i));
}

/* Has one of `findings` this text? */
static bool is_known(const json_t *findings, const char *what)
{
    json_t *finding;
    size_t i;
    json_array_foreach(findings, i, finding)
    {
        if (strcmp(json_text_of(finding, "what", ""), what) == 0)
            return true;
    }
    return false;
}

/* What another rank found and rank 0 did not, with its rank. */
static void take_findings(json_t *report, int rank, const json_t *theirs)
{
    json_t *mine = json_object_get(report, "findings"), *finding;
    size_t i;
    json_array_foreach(json_object_get(theirs, "findings"), i, finding)
    {
        if (is_known(mine, json_text_of(finding, "what", "")))
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

enum zd_status doctor_compare(struct doctor *doctor, struct comm *comm)
{
    char *all;
    size_t bytes, i;
    json_t *differences = json_array(), *finding;
    bool stops = false;
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
    json_array_foreach(json_object_get(doctor->report, "findings"), i, finding)
            stops |= strcmp(json_text_of(finding, "level", ""), "stop") == 0;
    doctor_put(doctor, "stops", json_boolean(stops));
    return ZD_OK;
}
