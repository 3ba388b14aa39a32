/* Waits of ranks that are threads: which are ended, and which are not. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "comm/backend.h"
#include "comm/comm.h"
#include "comm/watch/private.h"
#include "tests/support/must.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3 };

static enum zd_status (*work_of_all)(struct comm *comm);
static enum zd_status ended[RANKS]; /* as the work of each rank did */
static atomic_bool is_over;         /* a rank's wait has ended */
static int go[2];                   /* a pipe: what a test does in its order */

static void nap(double seconds)
{
    struct timespec time = {
            .tv_sec = (time_t)seconds,
            .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static void *run_rank(void *ctx)
{
    struct comm *comm = ctx;
    ended[comm_rank(comm)] = work_of_all(comm);
    atomic_store(&is_over, true);
    comm_destroy(comm);
    return NULL;
}

static void run(
        double timeout, double files_timeout,
        enum zd_status (*work)(struct comm *comm))
{
    const struct comm_options options = {
            .backend = COMM_LOCAL,
            .timeout = timeout,
            .files_timeout = files_timeout};
    struct comm *comms[RANKS];
    pthread_t threads[RANKS];
    MUST(comm_local_create(RANKS, &options, comms));
    work_of_all = work;
    for (int r = 0; r < RANKS; r++)
        pthread_create(&threads[r], NULL, run_rank, comms[r]);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
}

TestSuite(watch, .timeout = 60);

/* --- ended ---------------------------------------------------------------- */

/* Rank 1 computes for as long as no one's wait has ended. */
static enum zd_status loop(struct comm *comm)
{
    ZD_TRY(comm_barrier(comm));
    while (comm_rank(comm) == 1 && !atomic_load(&is_over))
        ;
    return comm_barrier(comm);
}

static struct watch_hang heard;
static char heard_host[WATCH_HOST_MAX], heard_operation[96];
static atomic_int heard_times;

static void hear(void *ctx, const struct watch_hang *hang)
{
    heard = *hang;
    ZD_PRINT(heard_host, "%s", hang->host);
    ZD_PRINT(heard_operation, "%s", hang->operation);
    heard_times++;
}

static enum zd_status loop_at_step_7(struct comm *comm)
{
    comm_step(comm, 7, 0);
    if (comm_rank(comm) == 0)
        comm_listen(comm, &(struct watch_listener){.hang = hear});
    return loop(comm);
}

Test(watch, a_rank_in_an_endless_loop_ends_the_waits_and_is_named)
{
    run(0.5, 0, loop_at_step_7);
    cr_expect_eq(ended[0], ZD_ERR_PEER);
    cr_expect_eq(ended[2], ZD_ERR_PEER);
    cr_expect_eq(heard_times, 1);
    cr_expect_eq(heard.rank, 1);
    cr_expect_eq(heard.step, 7);
    cr_expect_gt(heard.seconds, 0.5);
    cr_expect_str_eq(heard_operation, "barrier #3");
    cr_expect_str_not_empty(heard_host);
}

/* Rank 1 stands still behind the begin of a collective that goes through the
 * host, in which the others wait. */
static enum zd_status gather_staged(struct comm *comm)
{
    enum { COUNT = 50000, TIMES = 4 };
    static float full[RANKS][RANKS * COUNT]; /* others may still copy it */
    float *all = full[comm_rank(comm)], *own = all + comm_rank(comm) * COUNT;
    for (int i = 0; i < TIMES; i++) {
        struct comm_op *op;
        ZD_TRY(comm_begin(
                comm,
                &(struct comm_op){
                        .kind = COMM_ALL_GATHER,
                        .from = own,
                        .to = all,
                        .count = COUNT},
                &op));
        while (i == TIMES - 1 && comm_rank(comm) == 1 && !atomic_load(&is_over))
            nap(0.01);
        ZD_TRY(comm_wait(comm, op));
    }
    return ZD_OK;
}

static enum zd_status stop_staged(struct comm *control)
{
    static struct arena arenas[RANKS]; /* the same */
    static struct arena_plan plans[RANKS];
    struct comm *comm;
    struct arena *arena = &arenas[comm_rank(control)];
    struct arena_plan *plan = &plans[comm_rank(control)];
    struct comm_needs needs = {
            .transport = COMM_TRANSPORT_STAGED,
            .world = RANKS,
            .node_size = RANKS,
            .shard_bytes = 30000,
            .reduce_bytes = 30000,
            .accumulate_bytes = 30000};
    comm_step(control, 7, 0);
    if (comm_rank(control) == 0)
        comm_listen(control, &(struct watch_listener){.hang = hear});
    ZD_TRY(comm_staged_create(control, STREAM_THREAD, &comm));
    arena_plan_init(plan);
    ZD_TRY(comm_plan_needs(plan, &needs));
    ZD_TRY(arena_take(arena, plan));
    comm_set_memory(comm, arena);
    enum zd_status status = gather_staged(comm);
    atomic_store(&is_over, true);
    comm_destroy(comm);
    return status;
}

Test(watch, a_rank_that_stops_within_a_staged_collective_is_named)
{
    run(0.5, 0, stop_staged);
    cr_expect_eq(zd_exit_code(ended[0]), 75);
    cr_expect_eq(zd_exit_code(ended[2]), 75);
    cr_expect_eq(heard_times, 1);
    cr_expect_eq(heard.rank, 1);
    cr_expect_eq(heard.step, 7);
    cr_expect_eq(strncmp(heard_operation, "all_gather #", 12), 0);
}

static enum zd_status evaluate_in_silence(struct comm *comm)
{
    comm_work(comm, WORK_EVALUATE);
    return loop(comm);
}

Test(watch, work_that_stops_reporting_is_ended)
{
    double begun = clock_seconds();
    run(0.2, 0, evaluate_in_silence);
    cr_expect_eq(ended[0], ZD_ERR_PEER);
    cr_expect_geq(clock_seconds() - begun, 2, "ten times the limit");
}

/* Rank 1 waits for data for longer than files may take. */
static enum zd_status wait_for_data(struct comm *comm)
{
    ZD_TRY(comm_barrier(comm));
    if (comm_rank(comm) == 1) {
        struct comm_data data = comm_data_begin(comm);
        while (!atomic_load(&is_over))
            nap(0.01);
        comm_data_end(comm, data);
    }
    return comm_barrier(comm);
}

Test(watch, a_wait_for_data_ends_when_files_would)
{
    double begun = clock_seconds();
    run(0.2, 2, wait_for_data);
    cr_expect_neq(ended[0], ZD_OK);
    cr_expect_geq(clock_seconds() - begun, 2, "not by the limit of a hang");
}

/* --- not ended ------------------------------------------------------------ */

static enum zd_status come_late(struct comm *comm)
{
    ZD_TRY(comm_barrier(comm));
    if (comm_rank(comm) == 1)
        nap(1.2);
    return comm_barrier(comm);
}

static enum zd_status save_for_long(struct comm *comm)
{
    enum comm_work before = comm_work(comm, WORK_SAVE);
    enum zd_status status = come_late(comm);
    comm_work(comm, before);
    return status == ZD_OK ? comm_barrier(comm) : status;
}

/* For ten limits. */
static enum zd_status get_data_late(struct comm *comm)
{
    ZD_TRY(comm_barrier(comm));
    struct comm_data data = comm_data_begin(comm);
    if (comm_rank(comm) == 1)
        nap(2);
    comm_data_end(comm, data);
    return comm_barrier(comm);
}

static atomic_int stalls, moves;
static atomic_bool has_moved;

static void hear_stalled(void *ctx, const struct watch_hang *hang)
{
    if (!hang) {
        moves++;
        atomic_store(&has_moved, true);
        return;
    }
    hear(ctx, hang);
    stalls++;
}

/* Rank 1 is in no hurry, for as long as it takes to be noticed. */
static enum zd_status stall(struct comm *comm)
{
    comm_step(comm, 7, 0);
    if (comm_rank(comm) == 0)
        comm_listen(comm, &(struct watch_listener){.stalled = hear_stalled});
    for (int i = 0; i < 3; i++) { /* steps that are slow, but not so slow */
        ZD_TRY(comm_barrier(comm));
        nap(comm_rank(comm) == 1 ? 0.3 : 0);
    }
    int early = stalls;
    ZD_TRY(comm_barrier(comm));
    while (comm_rank(comm) == 1 && atomic_load(&stalls) == 0)
        nap(0.05);
    ZD_TRY(comm_barrier(comm));
    while (comm_rank(comm) == 1 && !atomic_load(&has_moved))
        nap(0.05);
    ZD_TRY(comm_barrier(comm));
    return early ? ZD_ERR_BUG : ZD_OK;
}

struct patience {
    const char *what;
    double timeout, files_timeout;
    enum zd_status (*work)(struct comm *comm);
};

static void expect_all_well(const struct patience *p)
{
    atomic_store(&is_over, false);
    run(p->timeout, p->files_timeout, p->work);
    for (int r = 0; r < RANKS; r++)
        cr_expect_eq(ended[r], ZD_OK, "%s: rank %d", p->what, r);
}

Test(watch, before_a_hang_it_is_said_who_stalls_and_when_it_moves)
{
    expect_all_well(&(struct patience){"a stall", 5, 0, stall});
    cr_expect_eq(stalls, 1);
    cr_expect_eq(moves, 1);
    cr_expect_eq(heard.rank, 1);
    cr_expect_eq(heard.step, 7);
    cr_expect_geq(heard.seconds, 3);
    cr_expect_str_eq(heard_operation, "barrier #6");
}

static enum zd_status predict(struct comm *comm)
{
    comm_predict(comm, 60);
    ZD_TRY(comm_barrier(comm));
    return atomic_load(&comm->watch->limit) == 600000000 ? ZD_OK : ZD_ERR_BUG;
}

static enum zd_status evaluate_aloud(struct comm *comm)
{
    comm_work(comm, WORK_EVALUATE);
    for (int i = 0; comm_rank(comm) == 1 && i < 30; i++) {
        comm_goes_on(comm);
        nap(0.1);
    }
    return comm_barrier(comm);
}

/* Delays of every length up to a fifth of the limit, in all orders of marks and
 * looks: no wait is ended, and no seat is in a state that it may not be in. */
static enum zd_status wander(struct comm *comm)
{
    unsigned seed = (unsigned)comm_rank(comm) + 1;
    for (int i = 0; i < 150; i++) {
        int64_t value = i;
        if (rand_r(&seed) % 8 == 0)
            nap(1e-3 * (rand_r(&seed) % 100));
        enum comm_work before =
                comm_work(comm, rand_r(&seed) % 2 ? WORK_SAVE : WORK_NONE);
        ZD_TRY(comm_all_reduce_i64(comm, &value, 1, COMM_SUM));
        comm_work(comm, before);
        comm_step(comm, i, 0.001 * (rand_r(&seed) % 10));
        ZD_TRY(comm_barrier(comm));
        if (value != (int64_t)RANKS * i)
            return ZD_ERR_BUG;
    }
    return ZD_OK;
}

static enum zd_status write_slowly(struct comm *comm)
{
    struct comm_files *files = comm_files_begin(comm, "save");
    comm_files_end(comm_files_begin(comm, "the save before"));
    for (int i = 0; i < 20; i++) {
        nap(0.1);
        progress_completed();
    }
    comm_files_end(files);
    nap(1);
    return comm_barrier(comm);
}

Test(watch, a_rank_with_progress_is_waited_for, .timeout = 180)
{
    static const struct patience all[] = {
            {"no limit", 0, 60, come_late}, /* the watch is there */
            {"a save", 0.2, 0, save_for_long},
            {"data", 0.2, 60, get_data_late},
            {"an evaluation that says so", 0.2, 0, evaluate_aloud},
            {"delays of any kind", 0.5, 0, wander},
            {"files that are written slowly", 0, 0.5, write_slowly},
            {"ten predicted steps", COMM_TIMEOUT_AUTO, 0, predict},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_all_well(&all[i]);
}

/* --- a process that is not scheduled -------------------------------------- */

static enum zd_status wait_for_go(struct comm *comm)
{
    char byte;
    ZD_TRY(comm_barrier(comm));
    if (comm_rank(comm) == 1) {
        if (write(go[1], "r", 1) != 1 || read(go[0], &byte, 1) != 1)
            return ZD_ERR_BUG;
    }
    return comm_barrier(comm);
}

/* All of it stands still for three limits; then the watch must not believe that
 * the ranks have waited for so long. */
Test(watch, a_watch_that_was_not_scheduled_restarts_its_clocks)
{
    int to_child[2], to_parent[2], state;
    char byte;
    cr_assert_eq(pipe(to_child), 0);
    cr_assert_eq(pipe(to_parent), 0);
    pid_t child = fork();
    if (child == 0) {
        go[0] = to_child[0];
        go[1] = to_parent[1];
        run(1, 0, wait_for_go);
        _exit(zd_exit_code(ended[0]));
    }
    cr_assert_eq(read(to_parent[0], &byte, 1), 1);
    kill(child, SIGSTOP);
    nap(3);
    kill(child, SIGCONT);
    nap(0.3);
    cr_assert_eq(write(to_child[1], "g", 1), 1);
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_expect(WIFEXITED(state));
    cr_expect_eq(WEXITSTATUS(state), 0);
}

/* --- files ---------------------------------------------------------------- */

/* Rank 1 alone reads or writes; nothing of it is ever done. */
static enum zd_status write_nothing(struct comm *comm)
{
    struct comm_files *files = NULL;
    if (comm_rank(comm) == 0)
        comm_listen(comm, &(struct watch_listener){.hang = hear});
    if (comm_rank(comm) == 1)
        files = comm_files_begin(comm, "save");
    /* the others wait for no rank: those that wait hold files too */
    while (!atomic_load(&is_over) && (files || heard_times == 0))
        nap(0.01);
    if (files)
        comm_files_end(files);
    return ZD_ERR_PEER;
}

Test(watch, file_work_without_progress_is_given_up)
{
    run(0, 0.4, write_nothing);
    cr_expect_eq(heard_times, 1);
    cr_expect_str_eq(heard_operation, "save");
}

/* A process that loops: no beat tells that it runs where it gets no CPU. */
Test(watch, a_process_that_could_run_is_told_from_one_that_is_stopped)
{
    pid_t pid = fork();
    while (pid == 0)
        __asm__ volatile("");
    cr_expect(watch_is_runnable(pid));
    cr_expect_not(watch_is_stopped(pid));
    kill(pid, SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    cr_expect_not(watch_is_runnable(pid));
    cr_expect(watch_is_stopped(pid));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    cr_expect_not(watch_is_runnable(pid));
}
