/* Collectives of device memory between processes, on the stand-ins for CUDA and
 * NCCL, or on GPUs. Arguments:
 *
 *     suite WAY [NAME]   the suite over WAY: nccl, ordered or staged, or its
 *                        cases with NAME in their names; TAP from rank 0
 *     work [FAULT RANKS] all_gathers of 40000 bytes a rank for ever, with
 *                        comm.timeout = TEST_COMM_TIMEOUT s (2) and one wait of
 *                        the host for each; after ten the rank, or each of
 *                        FIRST-LAST,
 *                          late      comes no more
 *                          stopped   the same, as a whole process
 *                          short     gathers less than the others
 *                          other     reduces where they gather
 *     ahead              the same, with one wait of the host for every ten
 *     groups             the same, in turn among the pairs of 2 x 2 ranks and
 *                        among all */
#include "base/device/device_memory.h"
#include "comm/comm.h"
#include "tests/comm/suite.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct comm_options options;
static struct comm *control, *comm;
static struct comm *groups[3]; /* that operations are in, in turn */
static struct device *device;
static struct arena_plan plan;
static struct arena arena;

static int fail(enum zd_status status)
{
    zd_error_print(stderr, zd_error_get());
    comm_destroy(control);
    return zd_exit_code(status);
}

static enum zd_status open_all(void)
{
    const size_t largest = 700000;
    ZD_TRY(device_open(
            DEVICE_CUDA, comm_local_rank(control), comm_local_size(control),
            &device));
    device_use(device);
    ZD_TRY(comm_device_create(control, &options, &comm));
    struct comm_needs needs = {
            .transport = comm_transport(comm),
            .world = comm_size(comm),
            .node_size = comm_mesh(comm).node,
            .shard_bytes = largest,
            .reduce_bytes = largest,
            .is_ordered = options.reduce == COMM_REDUCE_ORDERED,
            .accumulate_bytes = largest};
    arena_plan_init(&plan);
    ZD_TRY(comm_plan_needs(&plan, &needs));
    ZD_TRY(comm_agree(control, arena_take(&arena, &plan)));
    comm_set_memory(comm, &arena);
    return ZD_OK;
}

static void close_all(void)
{
    comm_destroy(comm);
    arena_release(&arena);
    arena_plan_fini(&plan);
    comm_destroy(control);
    device_use(NULL);
    device_close(device);
}

enum fault { NONE, LATE, STOPPED, SHORT, OTHER, FAULTS };
static const char *const fault_names[FAULTS] = {
        "none", "late", "stopped", "short", "other"};

static enum fault fault_of(const char *name)
{
    for (int f = 0; f < FAULTS; f++)
        if (strcmp(name, fault_names[f]) == 0)
            return (enum fault)f;
    fprintf(stderr, "no fault is called %s\n", name);
    exit(64);
}

static enum zd_status begin(
        struct comm *group, void *full, enum fault fault,
        struct comm_op **op_out)
{
    enum { COUNT = 10000 };
    size_t place = (size_t)comm_rank(group) * COUNT * 4;
    void *own = (char *)full + place;
    struct comm_op request = {
            .kind = COMM_ALL_GATHER,
            .from = own,
            .to = full,
            .count = fault == SHORT ? COUNT / 2 : COUNT};
    if (fault == OTHER) {
        request.kind = COMM_REDUCE_SCATTER;
        request.from = full;
        request.to = own;
    }
    return comm_begin(group, &request, op_out);
}

static enum zd_status make_groups(bool is_mesh)
{
    int rank = comm_rank(comm);
    groups[0] = groups[1] = groups[2] = comm;
    if (!is_mesh)
        return ZD_OK;
    ZD_TRY(comm_group_create(comm, "tp", rank & ~1, 1, 2, &groups[0]));
    return comm_group_create(comm, "shard", rank & 1, 2, 2, &groups[1]);
}

/* One wait of the host for so many operations. */
static enum zd_status work(enum fault fault, int per_wait)
{
    void *full;
    ZD_TRY(device_take((size_t)comm_size(comm) * 40000, &full));
    for (int step = 0;; step++) {
        struct comm *group = groups[step % 3];
        struct comm_op *op;
        enum fault now = step >= 10 ? fault : NONE;
        while (now == LATE)
            sleep(1);
        if (now == STOPPED)
            raise(SIGSTOP);
        ZD_TRY(begin(group, full, now, &op));
        ZD_TRY(comm_wait(group, op));
        if ((step + 1) % per_wait == 0)
            ZD_TRY(device_finish());
    }
}

/* RANK or FIRST-LAST */
static bool is_among(int rank, const char *ranks)
{
    int first = -1, last = -1;
    return sscanf(ranks, "%d-%d", &first, &last) == 2
                   ? rank >= first && rank <= last
                   : rank == first;
}

int main(int argc, char **argv)
{
    struct comm_options host = {.backend = COMM_MPI};
    bool is_suite = argc >= 3 && strcmp(argv[1], "suite") == 0;
    bool is_staged = is_suite && strcmp(argv[2], "staged") == 0;
    bool is_ordered = is_suite && strcmp(argv[2], "ordered") == 0;
    const char *set = getenv("TEST_COMM_TIMEOUT");
    double seconds = set ? atof(set) : 2;
    if (is_ordered)
        setenv("NCCL_STANDIN_SUMS", "ring", 1);
    options = (struct comm_options){
            .backend = is_staged ? COMM_MPI : COMM_NCCL,
            .hierarchical = getenv("ZEROD_TEST_RANKS_PER_NODE")
                                    ? COMM_LEVELS_TWO
                                    : COMM_LEVELS_AUTO,
            .reduce = is_ordered ? COMM_REDUCE_ORDERED : COMM_REDUCE_FAST,
            .timeout = is_suite ? 0 : seconds};
    host.hierarchical = options.hierarchical;
    host.timeout = options.timeout;
    enum zd_status status = comm_mpi_create(&argc, &argv, &host, &control);
    ZD_THEN(status, open_all());
    if (status != ZD_OK)
        return fail(status);
    if (is_suite) {
        int code = suite_report(comm, argc > 3 ? argv[3] : "", NULL);
        close_all();
        return code;
    }
    bool has_fault = argc == 4 && is_among(comm_rank(comm), argv[3]);
    bool is_ahead = argc >= 2 && strcmp(argv[1], "ahead") == 0;
    status = make_groups(argc >= 2 && strcmp(argv[1], "groups") == 0);
    if (status == ZD_OK)
        status = work(has_fault ? fault_of(argv[2]) : NONE, is_ahead ? 10 : 1);
    zd_error_print(stderr, zd_error_get());
    if (status == ZD_ERR_PEER)
        sleep(5); /* the watch tells, and ends it */
    comm_give_up(comm);
    MPI_Abort(MPI_COMM_WORLD, zd_exit_code(status));
    return zd_exit_code(status);
}
