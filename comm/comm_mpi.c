#include "comm/comm_mpi.h"
#include "base/must.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* One MPI call counts at most 2^31 - 1 elements. */
static const size_t MESSAGE_MAX = (size_t)1 << 30;

static struct mpi *mpi_of(struct comm *comm)
{
    return (struct mpi *)comm;
}

/* --- waiting -------------------------------------------------------------- */

struct idle {
    long since_ns; /* 0: not yet idle */
    int polls;
};

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* Called after each poll that found nothing. First it only spins; then it
 * yields the core; then it sleeps for an eighth of the time waited so far, so
 * that waking late adds little and a long wait uses no CPU. */
static void idle_step(struct idle *idle, const struct mpi *mpi)
{
    const long nap_min = 20 * 1000, nap_max = 1000 * 1000;
    if (++idle->polls < 16)
        return;
    long now = now_ns();
    if (!idle->since_ns)
        idle->since_ns = now;
    long waited = now - idle->since_ns;
    if (mpi->base.seat)
        seat_polls(mpi->base.seat, (uint64_t)now / 1000);
    if (waited < mpi->spin_ns) {
        sched_yield();
        return;
    }
    long nap = waited / 8;
    nap = nap < nap_min ? nap_min : nap > nap_max ? nap_max : nap;
    nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
}

/* Of all groups of this rank. */
static enum zd_status progress(struct mpi *mpi, bool *moved)
{
    for (struct comm *c = mpi->base.root; c; c = c->next)
        for (int s = 0; s < COMM_OP_KINDS; s++)
            ZD_TRY(stream_progress(&mpi_of(c)->streams[s], moved));
    return ZD_OK;
}

/* While this rank waits, rounds that use its groups' transport advance. */
static enum zd_status go_on(struct mpi *mpi, struct idle *idle)
{
    struct comm *rounds = mpi->base.root->rounds;
    bool moved = false;
    ZD_TRY(progress(mpi, &moved));
    if (rounds)
        ZD_TRY(comm_progress(rounds));
    if (moved)
        *idle = (struct idle){0};
    else
        idle_step(idle, mpi);
    return ZD_OK;
}

/* Wait for requests of our own, while the operations under way go on. */
static enum zd_status await_requests(
        struct mpi *mpi, int count, MPI_Request *requests)
{
    struct idle idle = {0};
    for (;;) {
        int done = 0;
        ZD_MPI(MPI_Testall, count, requests, &done, MPI_STATUSES_IGNORE);
        if (done)
            return ZD_OK;
        ZD_TRY(go_on(mpi, &idle));
    }
}

/* --- collectives ---------------------------------------------------------- */

static enum zd_status mpi_begin(struct comm *comm, struct comm_op *op)
{
    return stream_begin(&mpi_of(comm)->streams[op->kind], op);
}

static enum zd_status mpi_wait(struct comm *comm, struct comm_op *op)
{
    struct mpi *mpi = mpi_of(comm);
    struct idle idle = {0};
    while (!stream_op_is_done(op))
        ZD_TRY(go_on(mpi, &idle));
    return ZD_OK;
}

static enum zd_status mpi_progress(struct comm *comm)
{
    bool moved = false;
    return progress(mpi_of(comm), &moved);
}

static enum zd_status mpi_test(
        struct comm *comm, const struct comm_op *op, bool *done_out)
{
    bool moved = false;
    ZD_TRY(progress(mpi_of(comm), &moved));
    *done_out = stream_op_is_done(op);
    return ZD_OK;
}

static enum zd_status mpi_broadcast(
        struct comm *comm, void *data, size_t bytes, int root)
{
    struct mpi *mpi = mpi_of(comm);
    for (size_t done = 0, part; done < bytes; done += part) {
        MPI_Request request;
        part = bytes - done < MESSAGE_MAX ? bytes - done : MESSAGE_MAX;
        ZD_MPI(MPI_Ibcast, (char *)data + done, (int)part, MPI_BYTE, root,
               mpi->world, &request);
        ZD_TRY(await_requests(mpi, 1, &request));
    }
    return ZD_OK;
}

static enum zd_status mpi_exchange(
        struct comm *comm, const struct exchange *exchange)
{
    struct mpi *mpi = mpi_of(comm);
    int peers = comm->size - 1;
    int tag = exchange->traffic == TRAFFIC_STEP ? TAG_STEP : TAG_CONTROL;
    const char *from = exchange->from;
    char *to = exchange->to;
    size_t out = exchange->from_stride, in = exchange->to_stride;
    size_t rank = (size_t)comm->rank, bytes = exchange->bytes;
    memmove(to + rank * in, from + rank * out, bytes);
    for (size_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < MESSAGE_MAX ? bytes - done : MESSAGE_MAX;
        for (int i = 0; i < peers; i++) {
            int peer = mpi_peer(comm, i);
            ZD_MPI(MPI_Irecv, to + (size_t)peer * in + done, (int)part,
                   MPI_BYTE, peer, tag, mpi->world, &mpi->requests[i]);
        }
        for (int i = 0; i < peers; i++) {
            int peer = mpi_peer(comm, i);
            ZD_MPI(MPI_Isend, from + (size_t)peer * out + done, (int)part,
                   MPI_BYTE, peer, tag, mpi->world, &mpi->requests[peers + i]);
        }
        ZD_TRY(await_requests(mpi, 2 * peers, mpi->requests));
    }
    return ZD_OK;
}

/* --- life ----------------------------------------------------------------- */

/* The ranks leave together, in a wait like any other. After it each ends by
 * itself. */
static void mpi_destroy(struct comm *comm)
{
    struct mpi *mpi = mpi_of(comm);
    bool is_group = comm->root != comm;
    struct watch *watch = is_group ? NULL : comm->watch;
    struct seat *seat = is_group ? NULL : comm->seat;
    bool finalises = mpi->finalises;
    if (!is_group)
        comm_message_begin(comm, SEAT_PART);
    for (int s = 0; s < COMM_OP_KINDS; s++)
        stream_fini(&mpi->streams[s]);
    if (mpi->world != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->world);
    comm_base_fini(comm);
    free(mpi->requests);
    free(mpi);
    if (finalises)
        MPI_Finalize();
    if (seat)
        seat_leave(seat);
    watch_destroy(watch);
}

static void take_memory(struct mpi *mpi)
{
    size_t size = (size_t)mpi->base.size;
    mpi->requests = zd_array(2 * size, sizeof *mpi->requests);
    for (int s = 0; s < COMM_OP_KINDS; s++)
        stream_init(&mpi->streams[s], mpi, (enum comm_op_kind)s);
}

/* A separate communicator, so that groups do not receive each other's
 * messages. */
static enum zd_status split(struct mpi *mpi, struct comm *parent)
{
    ZD_MPI(MPI_Comm_split, mpi_of(parent)->world, mpi->base.row.first,
           mpi->base.rank, &mpi->world);
    ZD_MPI(MPI_Comm_set_errhandler, mpi->world, MPI_ERRORS_RETURN);
    return ZD_OK;
}

static enum zd_status mpi_group(
        struct comm *parent, struct comm *control, const struct comm_row *row,
        struct comm **group_out)
{
    struct mpi *mpi = zd_array(1, sizeof *mpi);
    comm_group_init(&mpi->base, parent, control, row);
    mpi->world = MPI_COMM_NULL;
    mpi->spin_ns = mpi_of(parent)->spin_ns;
    take_memory(mpi);
    comm_message_begin(parent, SEAT_GATHER);
    enum zd_status status = split(mpi, parent);
    comm_message_end(parent);
    *group_out = &mpi->base;
    return status;
}

static const struct comm_functions mpi_functions = {
        .group = mpi_group,
        .begin = mpi_begin,
        .wait = mpi_wait,
        .progress = mpi_progress,
        .test = mpi_test,
        .broadcast = mpi_broadcast,
        .exchange = mpi_exchange,
        .transport = COMM_TRANSPORT_HOST,
        .destroy = mpi_destroy,
};

/* Within a node Open MPI copies directly from the peer's memory if the system
 * allows it. Containers often do not (seccomp), and Open MPI 4 then warns about
 * each message: check first, and choose shared memory. The user's own choice
 * wins. */
static void choose_single_copy(void)
{
    int there = 1, here = 0;
    struct iovec from = {&there, sizeof there}, to = {&here, sizeof here};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof here)
        return;
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* 4 */
    setenv("OMPI_MCA_smsc", "^cma", 0);                            /* 5 */
}

/* Tell deploy/mpirun.sh not to wait for hosts that may be down. */
static void tell_launcher(int exit_code)
{
    const char *path = getenv("ZEROD_LAUNCHER_FILE");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    dprintf(file, "%d\n", exit_code);
    close(file);
}

/* The watch ends the process. MPI is not called: its thread may be what hangs.
 * mpirun ends the others when this process has exited with the code. */
static void end_process(void *ctx, int exit_code)
{
    FILE *const files[] = {stdout, stderr};
    tell_launcher(exit_code);
    for (int i = 0; i < 2; i++)
        if (ftrylockfile(files[i]) == 0) {
            fflush_unlocked(files[i]);
            funlockfile(files[i]);
        }
    _exit(exit_code);
}

bool comm_is_launched(void)
{
    static const char *const marks[] = {
            "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

/* The watch starts before MPI, since finding the other ranks is a wait too. */
static enum zd_status start_watch(
        struct mpi *mpi, const struct comm_options *options)
{
    struct watch_facts facts = comm_watch_facts(options);
    facts.is_launched = comm_is_launched();
    facts.end = end_process;
    return watch_create(&facts, 1, &mpi->base.watch);
}

static void sweep(void)
{
    const char *place = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    if (!place || strcmp(place, "0") == 0)
        leftovers_sweep();
}

static enum zd_status start_mpi(
        struct mpi *mpi, int *argc, char ***argv,
        const struct comm_options *options)
{
    int is_initialized = 0, provided = MPI_THREAD_SINGLE;
    ZD_MPI(MPI_Initialized, &is_initialized);
    if (!is_initialized) {
        choose_single_copy();
        sweep();
    }
    ZD_TRY(start_watch(mpi, options));
    if (is_initialized) {
        ZD_MPI(MPI_Query_thread, &provided);
    } else {
        ZD_MPI(MPI_Init_thread, argc, argv, MPI_THREAD_FUNNELED, &provided);
        mpi->finalises = true;
    }
    if (provided < MPI_THREAD_FUNNELED)
        return ZD_FAIL(
                ZD_ERR_UNFIT, "E0503",
                "this MPI library does not support threads "
                "(MPI_THREAD_FUNNELED)");
    return ZD_OK;
}

/* Finds the ranks of this host, and how long a wait may spin: briefly with a
 * core for every rank, else not at all. */
static enum zd_status look_around(struct mpi *mpi)
{
    struct comm *comm = &mpi->base;
    MPI_Comm node;
    ZD_MPI(MPI_Comm_split_type, mpi->world, MPI_COMM_TYPE_SHARED, comm->rank,
           MPI_INFO_NULL, &node);
    ZD_MPI(MPI_Comm_rank, node, &comm->local_rank);
    ZD_MPI(MPI_Comm_size, node, &comm->local_size);
    ZD_MPI(MPI_Comm_free, &node);
    gethostname(comm->host, sizeof comm->host - 1);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    mpi->spin_ns = comm->local_size <= cores ? 200 * 1000 : 0;
    return ZD_OK;
}

/* Do all nodes have equally many ranks, numbered consecutively? */
static enum zd_status settle_levels(struct mpi *mpi)
{
    struct comm *comm = &mpi->base;
    int mine[2] = {comm->local_rank, comm->local_size};
    int k = mine[1], fits = 1;
    ZD_MPI(MPI_Bcast, &k, 1, MPI_INT, 0, mpi->world);
    fits = mine[1] == k && mesh_has_nodes(comm->size, k) &&
           mine[0] == mesh_group(mesh_of(comm->size, k), MESH_NODE, comm->rank)
                              .place;
    ZD_MPI(MPI_Allreduce, MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_MIN, mpi->world);
    return comm_levels_settle(comm, fits ? k : 0);
}

static enum zd_status gather_places(
        void *ctx, const void *mine, size_t bytes, void *all)
{
    return mpi_exchange(
            ctx, &(struct exchange){
                         .from = mine,
                         .to = all,
                         .to_stride = bytes,
                         .bytes = bytes,
                         .traffic = TRAFFIC_CONTROL});
}

static enum zd_status join_watch(struct mpi *mpi)
{
    struct comm *comm = &mpi->base;
    char host[WATCH_HOST_MAX];
    comm_watch_host(comm, host);
    ZD_TRY(watch_join(
            comm->watch,
            &(struct watch_world){
                    .rank = comm->rank,
                    .size = comm->size,
                    .host = host,
                    .shares_memory = comm->local_size == comm->size,
                    .gather = gather_places,
                    .ctx = comm}));
    comm->seat = watch_seat(comm->watch, 0);
    /* also if no wait was long enough to poll twice */
    seat_polls(comm->seat, seat_clock());
    return ZD_OK;
}

static enum zd_status connect(
        struct mpi *mpi, const struct comm_options *options)
{
    int rank, size;
    ZD_MPI(MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ZD_MPI(MPI_Comm_dup, MPI_COMM_WORLD, &mpi->world);
    ZD_MPI(MPI_Comm_set_errhandler, mpi->world, MPI_ERRORS_RETURN);
    ZD_MPI(MPI_Comm_rank, mpi->world, &rank);
    ZD_MPI(MPI_Comm_size, mpi->world, &size);
    comm_base_init(&mpi->base, &mpi_functions, rank, size, options);
    take_memory(mpi);
    ZD_TRY(look_around(mpi));
    ZD_TRY(join_watch(mpi));
    return comm_agree(&mpi->base, settle_levels(mpi));
}

enum zd_status comm_mpi_create(
        int *argc, char ***argv, const struct comm_options *options,
        struct comm **comm_out)
{
    struct mpi *mpi = zd_array(1, sizeof *mpi);
    mpi->base.root = &mpi->base;
    mpi->world = MPI_COMM_NULL;
    enum zd_status status = start_mpi(mpi, argc, argv, options);
    ZD_THEN(status, connect(mpi, options));
    if (status != ZD_OK) {
        /* Print it before MPI_Finalize, where ranks wait for each other: mpirun
         * kills all when the first of them ends. */
        zd_error_print(stderr, zd_error_get());
        zd_error_clear();
        mpi_destroy(&mpi->base);
        return status;
    }
    *comm_out = &mpi->base;
    return ZD_OK;
}
