#include "base/must.h"
#include "comm/watch/private.h"

#include "base/log.h"
#include "base/threads.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { LOOK_MS = 50 };
/* How long to wait for the rank that writes the event, which may be killed
 * meanwhile. */
/* longer than its listener may take */
static const uint64_t WRITING = 8000 * 1000;
/* Ranks that are threads have this long to leave by themselves. */
static const uint64_t LEAVING = 10 * 1000 * 1000;
/* Rounds of first questions, until all have answered. */
enum { GREETINGS = 6 };
static const uint64_t GREET_AGAIN = 5000 * 1000;

/* --- the end -------------------------------------------------------------- */

/* One rank of each host prints it: the writer on its host, elsewhere the lowest
 * rank that does not hang. */
static bool tells(const struct watch *watch, const struct verdict *verdict)
{
    int writer = verdict->writer;
    if (!watch->peers || writer < 0 || watch_has(watch, writer))
        return true;
    if (watch_same_host(watch, writer))
        return false;
    for (int r = 0; r < watch->rank; r++)
        if (r != verdict->rank && watch_same_host(watch, r))
            return false;
    return watch->rank != verdict->rank;
}

/* mpirun kills all other ranks when one has left, so wait for the one that
 * writes the event. */
static void wait_for_writer(struct watch *watch, const struct verdict *verdict)
{
    uint64_t from = seat_clock();
    if (!watch->peers || verdict->writer < 0)
        return;
    while (!watch->is_written && seat_clock() - from < WRITING)
        peers_look(watch->peers, 5);
    if (!watch->is_written && verdict->kind != END_FAILED &&
        watch_same_host(watch, verdict->writer))
        /* the writer is gone and has printed nothing */
        watch_tell(watch, verdict);
}

/* The job ends; found here (`is_new`) or told by a peer. Only the first verdict
 * counts. */
static void conclude(
        struct watch *watch, const struct verdict *verdict, bool is_new)
{
    if (watch->is_over)
        return;
    watch->is_over = true;
    watch->exit_code = verdict->exit_code;
    watch->over_since = watch->last;
    if (tells(watch, verdict))
        watch_tell(watch, verdict);
    if (is_new && watch->peers) /* of a failure only to this host */
        peers_tell_over(watch->peers, verdict, verdict->kind == END_FAILED);
    if (!watch_has(watch, verdict->writer)) {
        wait_for_writer(watch, verdict);
    } else {
        if (verdict->kind != END_LAUNCHER && verdict->kind != END_FAILED)
            watch_tell_listener(watch, verdict);
        if (watch->peers)
            peers_tell_written(watch->peers);
    }
    if (watch->ending.end)
        watch->ending.end(watch->ending.ctx);
    watch->facts.end(watch->facts.ctx, verdict->exit_code);
}

/* --- the thread ----------------------------------------------------------- */

/* Of what another process has told. */
static void hear_end(struct watch *watch)
{
    if (watch->has_heard && !atomic_load(&watch->gave_up))
        conclude(watch, &watch->heard, false);
}

/* Find out early which ranks can be queried. */
static void greet(struct watch *watch)
{
    bool all = true;
    if (!watch->peers || watch->greetings == GREETINGS ||
        (watch->greetings && watch->last - watch->greeted < GREET_AGAIN))
        return;
    for (int r = 0; r < watch->size; r++)
        all = all && watch->ranks[r].ever_heard;
    if (all)
        return;
    watch->greetings++;
    watch_look_around(watch);
    watch->greeted = watch->last;
}

static void look(struct watch *watch)
{
    struct verdict verdict;
    watch_alive(watch);
    if (watch->peers)
        peers_look(watch->peers, 0);
    hear_end(watch);
    if (watch->is_over || atomic_load(&watch->gave_up))
        return;
    greet(watch);
    bool is_end = watch_check_launcher(watch, &verdict) ||
                  watch_check_files(watch, &verdict) ||
                  watch_check_waits(watch, &verdict);
    hear_end(watch);
    if (is_end)
        conclude(watch, &verdict, true);
    if (!watch->is_over)
        watch_look_at_stall(watch);
}

/* Do not wait for ranks that do not leave. */
static void look_after_end(struct watch *watch)
{
    if (watch->is_over && watch->last - watch->over_since > LEAVING)
        _exit(watch->exit_code);
}

/* False: the watch ends. */
static bool rest(struct watch *watch)
{
    struct pollfd fds[2] = {
            {.fd = watch->stop, .events = POLLIN},
            {.fd = watch->peers ? peers_socket(watch->peers) : -1,
             .events = POLLIN}};
    pthread_mutex_unlock(&watch->lock);
    int ready = poll(fds, 2, LOOK_MS);
    pthread_mutex_lock(&watch->lock);
    return !(ready > 0 && fds[0].revents);
}

static void *watch_ranks(void *ctx)
{
    struct watch *watch = ctx;
    ZD_LOCKED(&watch->lock);
    do {
        look(watch);
        look_after_end(watch);
    } while (rest(watch));
    return NULL;
}

/* --- life ----------------------------------------------------------------- */

/* The limit before the first step: the given one, or the learned one for no
 * steps. */
static void set_limit(struct watch *watch)
{
    double seconds = watch->facts.timeout;
    if (seconds < 0)
        seconds = pace_limit(&watch->pace);
    atomic_store(&watch->limit, (uint64_t)(1e6 * seconds));
}

static enum zd_status start(struct watch *watch)
{
    if (watch->facts.timeout == 0 && watch->facts.files_timeout == 0 &&
        !watch->facts.is_launched)
        return ZD_OK;
    watch->stop = eventfd(0, EFD_CLOEXEC);
    if (watch->stop < 0 ||
        thread_start(&watch->thread, "zerod-watch", watch_ranks, watch) != 0)
        return ZD_FAIL(
                ZD_ERR_MEMORY, "E0602",
                "the system refused a thread to watch over the ranks");
    watch->is_started = true;
    return ZD_OK;
}

static void wait_to_join(struct seat *seat)
{
    const struct seat_op join = {
            .number = 1, .lane = LANE_MESSAGES, .kind = SEAT_JOIN};
    seat_init(seat);
    seat_begin(seat, &join);
    seat_wait_begin(seat, join.lane, join.number);
}

enum zd_status watch_create(
        const struct watch_facts *facts, int seats, struct watch **watch_out)
{
    struct watch *watch = zd_array(1, sizeof *watch);
    pthread_mutex_init(&watch->lock, NULL);
    watch->facts = *facts;
    watch->stop = -1;
    watch->size = watch->count = seats;
    watch->launcher = (int)getppid();
    /* a stopped process must continue when its launcher ends, to notice it */
    if (facts->is_launched)
        prctl(PR_SET_PDEATHSIG, SIGCONT);
    watch->trainer = pthread_self();
    watch->last = watch->floor = seat_clock();
    watch->seats = zd_array((size_t)seats, sizeof *watch->seats);
    for (int n = 0; n < seats; n++)
        wait_to_join(&watch->seats[n]);
    set_limit(watch);
    enum zd_status status = start(watch);
    if (status != ZD_OK) {
        watch_destroy(watch);
        return status;
    }
    *watch_out = watch;
    return ZD_OK;
}

void watch_destroy(struct watch *watch)
{
    uint64_t one = 1;
    if (!watch)
        return;
    if (watch->is_started && write(watch->stop, &one, sizeof one) == sizeof one)
        pthread_join(watch->thread, NULL);
    if (watch->stop >= 0)
        close(watch->stop);
    peers_destroy(watch->peers);
    free(watch->seats);
    free(watch->about);
    free(watch->ranks);
    for (int i = 0; i < WATCH_FILES_MAX; i++)
        if (atomic_load(&watch->files[i].is_taken))
            return; /* from a thread that was left running (comm_files_end) */
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

/* --- joining -------------------------------------------------------------- */

/* With all ranks in this process there is one to tell of. */
static enum zd_status gather(
        const struct watch_world *world, const struct peer_about *mine,
        struct peer_about *about)
{
    if (world->gather)
        return world->gather(world->ctx, mine, sizeof *mine, about);
    for (int r = 0; r < world->size; r++)
        about[r] = *mine;
    return ZD_OK;
}

enum zd_status watch_join(struct watch *watch, const struct watch_world *world)
{
    struct peer_about mine = {.unused = 0};
    struct peer_about *about = zd_array((size_t)world->size, sizeof *about);
    struct peers *peers = NULL;
    ZD_PRINT(mine.host, "%s", world->host);
    if (world->gather)
        peers = peers_open(watch, world->shares_memory, &mine);
    enum zd_status status = gather(world, &mine, about);
    pthread_mutex_lock(&watch->lock);
    watch->rank = world->rank;
    watch->size = world->size;
    watch->ranks = zd_array((size_t)world->size, sizeof *watch->ranks);
    watch->about = about;
    bool can_ask = peers && status == ZD_OK && peers_socket(peers) >= 0;
    watch->peers = can_ask ? peers : NULL;
    pthread_mutex_unlock(&watch->lock);
    if (!can_ask)
        peers_destroy(peers);
    for (int n = 0; status == ZD_OK && n < watch->count; n++)
        seat_wait_end(&watch->seats[n]);
    return status;
}

struct seat *watch_seat(struct watch *watch, int n)
{
    return &watch->seats[n];
}

/* --- what it is told ------------------------------------------------------ */

void watch_step(struct watch *watch, double seconds)
{
    ZD_LOCKED(&watch->lock);
    pace_add(&watch->pace, seconds);
    set_limit(watch);
}

void watch_predict(struct watch *watch, double seconds)
{
    ZD_LOCKED(&watch->lock);
    watch->pace.predicted = seconds;
    set_limit(watch);
}

void watch_operations_run(struct watch *watch)
{
    for (int n = 0; n < watch->count; n++) {
        ZD_LOCKED(&watch->seats[n].lock);
        watch->seats[n].runs_alone = true;
    }
}

void watch_give_up(struct watch *watch)
{
    atomic_store(&watch->gave_up, true);
}

void watch_listen(struct watch *watch, const struct watch_listener *listener)
{
    ZD_LOCKED(&watch->lock);
    watch->listener = *listener;
}

void watch_on_end(struct watch *watch, const struct watch_ending *ending)
{
    ZD_LOCKED(&watch->lock);
    watch->ending = *ending;
}

/* --- a failure ------------------------------------------------------------ */

void watch_fail(struct watch *watch)
{
    struct verdict verdict = {
            .rank = watch->rank,
            .kind = END_FAILED,
            .exit_code = 75,
            .writer = watch->rank};
    ZD_LOCKED(&watch->lock);
    watch->failure = *zd_error_get();
    if (watch->peers) /* a peer may just have reported the cause */
        peers_look(watch->peers, 0);
    hear_end(watch);
    if (watch->is_over) {
        zd_log(ZD_LOG_ERROR, "rank %d (%s) too: %s", watch->rank,
               watch_host(watch, watch->rank), watch->failure.what);
    } else if (!atomic_load(&watch->gave_up)) {
        conclude(watch, &verdict, true);
    }
}

/* --- files ---------------------------------------------------------------- */

static struct comm_files *files_begin(
        struct watch *watch, const char *what, bool is_held)
{
    ZD_EACH(files, watch->files, WATCH_FILES_MAX) {
        bool is_taken = false;
        if (!atomic_compare_exchange_strong(&files->is_taken, &is_taken, true))
            continue;
        files->watch = watch;
        atomic_store(&files->is_held, is_held);
        atomic_store(&files->what, what);
        files->before = progress_use(&files->progress);
        return files;
    }
    return NULL;
}

struct comm_files *watch_files_begin(struct watch *watch, const char *what)
{
    return files_begin(
            watch, what,
            watch->count > 1 || pthread_equal(watch->trainer, pthread_self()));
}

struct comm_files *watch_data_begin(struct watch *watch)
{
    return files_begin(watch, "wait for data", false);
}

void comm_files_ask_first(
        struct comm_files *files, bool (*goes_on)(void *ctx), void *ctx)
{
    if (!files)
        return;
    ZD_LOCKED(&files->watch->lock);
    files->goes_on = goes_on;
    files->ctx = ctx;
    atomic_store(&files->is_held, false);
}

void comm_files_end(struct comm_files *files)
{
    if (!files)
        return;
    progress_use(files->before);
    if (files->goes_on)
        comm_files_ask_first(files, NULL, NULL);
    atomic_store(&files->what, NULL);
    atomic_store(&files->is_taken, false);
}
