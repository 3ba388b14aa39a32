#include "base/must.h"
#include "comm/watch/private.h"

#include "base/log.h"
#include "base/threads.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 50 };
/* Who looks later than this after its last look was not scheduled. */
static const uint64_t LOST = 1000 * 1000;
/* For the one that tells the end, who may be killed meanwhile. */
static const uint64_t TELLING = 3000 * 1000;
/* Ranks that are threads have this long to leave by themselves. */
static const uint64_t LEAVING = 10 * 1000 * 1000;
/* Other hosts are asked for the first time, until all have answered. */
enum { GREETINGS = 6 };
static const uint64_t GREET_AGAIN = 5000 * 1000;

/* --- the end -------------------------------------------------------------- */

static bool is_own_rank(const struct watch *watch, int rank)
{
    return rank >= watch->rank && rank < watch->rank + watch->count;
}

/* mpirun kills the other ranks when one has left: the one that writes the event
 * is waited for. */
static void wait_for_writer(struct watch *watch, int writer)
{
    uint64_t from = seat_clock();
    if (writer < 0 || !watch->first ||
        watch->first[writer] != watch->first[watch->rank])
        return;
    while (!atomic_load(&watch_board(watch)->is_written) &&
           seat_clock() - from < TELLING)
        poll(NULL, 0, 5);
}

static void end(struct watch *watch, const struct verdict *verdict)
{
    watch->is_over = true;
    watch->exit_code = verdict->exit_code;
    watch->telling_since = watch->last;
    if (is_own_rank(watch, verdict->writer)) {
        watch_tell_listener(watch, verdict);
        atomic_store(&watch_board(watch)->is_written, true);
    } else {
        wait_for_writer(watch, verdict->writer);
    }
    if (watch->ending.end)
        watch->ending.end(watch->ending.ctx);
    watch->facts.end(watch->facts.ctx, verdict->exit_code);
}

/* By whoever finds it first on this host; `is_new`: and not heard from another.
 */
static void conclude(
        struct watch *watch, const struct verdict *found, bool is_new)
{
    struct board *board = watch_board(watch);
    struct verdict verdict = *found;
    uint32_t phase = BOARD_OPEN;
    if (!atomic_compare_exchange_strong(&board->phase, &phase, BOARD_TELLING))
        return;
    board->verdict = verdict;
    if (is_new && verdict.kind != END_FAILED && watch->hosts)
        hosts_tell_over(watch->hosts, &verdict);
    watch_tell(watch, &verdict);
    atomic_store(&board->phase, BOARD_TOLD);
    end(watch, &verdict);
}

/* Another rank's watch has found the end. */
static void follow(struct watch *watch)
{
    struct board *board = watch_board(watch);
    uint32_t phase = atomic_load(&board->phase);
    if (phase == BOARD_OPEN)
        return;
    if (!watch->telling_since)
        watch->telling_since = watch->last;
    if (phase == BOARD_TOLD) {
        struct verdict verdict = board->verdict;
        end(watch, &verdict);
    } else if (watch->last - watch->telling_since > TELLING) {
        end(watch, &(struct verdict){.writer = -1, .exit_code = 75});
    }
}

/* --- the thread ----------------------------------------------------------- */

void watch_alive(struct watch *watch)
{
    uint64_t now = seat_clock();
    if (now - watch->last > LOST)
        watch->floor = now;
    watch->last = now;
    for (int n = 0; n < watch->count; n++)
        atomic_store(&watch_own(watch, n)->beat, now);
}

static void alive(void *ctx)
{
    watch_alive(ctx);
}

static void over(void *ctx, const struct verdict *verdict)
{
    struct watch *watch = ctx;
    if (!watch->is_over && !atomic_load(&watch->gave_up))
        conclude(watch, verdict, false);
}

/* Which hosts can be asked is known before it matters. */
static void greet(struct watch *watch)
{
    bool all = true;
    if (!watch->hosts || !hosts_are_open(watch->hosts) ||
        watch->greetings == GREETINGS ||
        (watch->greetings && watch->last - watch->greeted < GREET_AGAIN))
        return;
    for (int r = 0; r < watch->size; r++)
        all = all && watch->ever_heard[r];
    if (all)
        return;
    watch->greetings++;
    watch_look_around(watch, LANE_MESSAGES);
    watch->greeted = watch->last;
}

static void look(struct watch *watch)
{
    struct verdict verdict;
    watch_alive(watch);
    if (watch->hosts && hosts_are_open(watch->hosts))
        hosts_look(watch->hosts, 0);
    if (watch->is_over || atomic_load(&watch->gave_up))
        return;
    follow(watch);
    if (!watch->is_over)
        greet(watch);
    if (!watch->is_over && (watch_check_launcher(watch, &verdict) ||
                            watch_check_files(watch, &verdict) ||
                            watch_check_waits(watch, &verdict)))
        conclude(watch, &verdict, true);
    if (!watch->is_over)
        watch_look_at_stall(watch);
}

/* Ranks that do not leave are left behind. */
static void look_after_end(struct watch *watch)
{
    if (watch->is_over && watch->last - watch->telling_since > LEAVING)
        _exit(watch->exit_code);
}

/* False: the watch ends. */
static bool rest(struct watch *watch)
{
    struct pollfd fds[2] = {
            {.fd = watch->stop, .events = POLLIN},
            {.fd = watch->hosts ? hosts_socket(watch->hosts) : -1,
             .events = POLLIN}};
    pthread_mutex_unlock(&watch->lock);
    int ready = poll(fds, 2, LOOK_MS);
    pthread_mutex_lock(&watch->lock);
    return !(ready > 0 && fds[0].revents);
}

static void *watch_ranks(void *ctx)
{
    struct watch *watch = ctx;
    pthread_mutex_lock(&watch->lock);
    do {
        look(watch);
        look_after_end(watch);
    } while (rest(watch));
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* --- life ----------------------------------------------------------------- */

/* Before the first step the limit is what is given, or the learned one of no
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

enum zd_status watch_create(
        const struct watch_facts *facts, int seats, struct watch **watch_out)
{
    struct watch *watch = zd_must(calloc(1, sizeof *watch));
    pthread_mutex_init(&watch->lock, NULL);
    watch->facts = *facts;
    watch->stop = -1;
    watch->size = watch->count = watch->host_count = seats;
    watch->launcher = (int)getppid();
    /* one that stands still when its launcher goes runs on, and sees it */
    if (facts->is_launched)
        prctl(PR_SET_PDEATHSIG, SIGCONT);
    watch->trainer = pthread_self();
    watch->last = watch->floor = seat_clock();
    watch->calls = (struct hosts_calls){
            .ctx = watch,
            .tell = watch_tell_seats,
            .over = over,
            .alive = alive};
    watch->private = board_create(seats);
    watch->own = zd_must(calloc((size_t)seats, sizeof *watch->own));
    for (int n = 0; n < seats; n++)
        seat_take(watch_own(watch, n));
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
    board_leave(watch);
    hosts_destroy(watch->hosts);
    pthread_mutex_destroy(&watch->lock);
    free(watch->private);
    free(watch->own);
    free(watch->first);
    free(watch->places);
    free(watch->flags);
    free(watch->told);
    free(watch->heard);
    free(watch->ever_heard);
    free(watch);
}

/* In so many limits from now, and again after as many. Signals of timers reach
 * a process that is stopped. */
static void ask_kernel(const struct watch *watch, int signal, uint64_t limits)
{
    uint64_t time = limits * atomic_load(&watch->limit);
    struct sigevent event = {
            .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    struct timespec in = {
            .tv_sec = (time_t)(time / 1000000),
            .tv_nsec = (long)(time % 1000000 * 1000)};
    struct itimerspec when = {.it_value = in, .it_interval = in};
    timer_t timer; /* the process' own: never given back */
    if (time && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        timer_settime(timer, 0, &when, NULL);
}

void watch_parts(struct watch *watch)
{
    ask_kernel(watch, SIGCONT, 1);
}

void watch_ends(struct watch *watch)
{
    ask_kernel(watch, SIGKILL, 10);
}

struct seat *watch_seat(struct watch *watch, int n)
{
    return watch_own(watch, n);
}

/* --- what it is told ------------------------------------------------------ */

void watch_step(struct watch *watch, double seconds)
{
    pthread_mutex_lock(&watch->lock);
    pace_add(&watch->pace, seconds);
    set_limit(watch);
    pthread_mutex_unlock(&watch->lock);
}

void watch_predict(struct watch *watch, double seconds)
{
    pthread_mutex_lock(&watch->lock);
    watch->pace.predicted = seconds;
    set_limit(watch);
    pthread_mutex_unlock(&watch->lock);
}

void watch_operations_run(struct watch *watch)
{
    atomic_store(&watch->runs_alone, true);
}

void watch_give_up(struct watch *watch)
{
    atomic_store(&watch->gave_up, true);
}

void watch_listen(struct watch *watch, const struct watch_listener *listener)
{
    pthread_mutex_lock(&watch->lock);
    watch->listener = *listener;
    pthread_mutex_unlock(&watch->lock);
}

void watch_on_end(struct watch *watch, const struct watch_ending *ending)
{
    pthread_mutex_lock(&watch->lock);
    watch->ending = *ending;
    pthread_mutex_unlock(&watch->lock);
}

/* --- a failure ------------------------------------------------------------ */

void watch_fail(struct watch *watch)
{
    struct verdict verdict = {
            .rank = watch->rank,
            .kind = END_FAILED,
            .exit_code = 75,
            .writer = -1};
    pthread_mutex_lock(&watch->lock);
    watch->failure = *zd_error_get();
    if (atomic_load(&watch_board(watch)->phase) != BOARD_OPEN) {
        zd_log(ZD_LOG_ERROR, "rank %d (%s) too: %s", watch->rank,
               watch_host(watch, watch->rank), watch->failure.what);
    } else if (!atomic_load(&watch->gave_up)) {
        conclude(watch, &verdict, true);
    }
    pthread_mutex_unlock(&watch->lock);
}

/* --- files ---------------------------------------------------------------- */

static struct comm_files *files_begin(
        struct watch *watch, const char *what, bool is_held)
{
    for (int i = 0; i < WATCH_FILES_MAX; i++) {
        struct comm_files *files = &watch->files[i];
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

void comm_files_give_up(
        struct comm_files *files, bool (*give_up)(void *ctx), void *ctx)
{
    if (!files)
        return;
    pthread_mutex_lock(&files->watch->lock);
    files->give_up = give_up;
    files->ctx = ctx;
    atomic_store(&files->is_held, false);
    pthread_mutex_unlock(&files->watch->lock);
}

void comm_files_end(struct comm_files *files)
{
    if (!files)
        return;
    progress_use(files->before);
    if (files->give_up)
        comm_files_give_up(files, NULL, NULL);
    atomic_store(&files->what, NULL);
    atomic_store(&files->is_taken, false);
}
