/* What the watch checks: waits, files, the process that started this one. */
#include "comm/watch/private.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Minimum time between two queries of the others. */
static const uint64_t ASK_AGAIN = 1000 * 1000, LOOK_AGAIN = 100 * 1000;

/* A thread's state, "S", "R", "T"; 0: the thread has ended. */
static char state_of(int pid, const char *thread)
{
    char path[300], line[512], *end = NULL;
    ZD_PRINT(path, "/proc/%d/task/%s/stat", pid, thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fgets(line, sizeof line, file))
        end = strrchr(line, ')'); /* a name may have brackets in it */
    fclose(file);
    return end && end[1] ? end[2] : 0;
}

bool watch_is_runnable(int pid)
{
    char path[64];
    struct dirent *entry;
    bool is_runnable = false;
    ZD_PRINT(path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    while (dir && !is_runnable && (entry = readdir(dir)))
        is_runnable =
                entry->d_name[0] != '.' && state_of(pid, entry->d_name) == 'R';
    if (dir)
        closedir(dir);
    return is_runnable;
}

bool watch_is_stopped(int pid)
{
    char thread[16];
    ZD_PRINT(thread, "%d", pid);
    char state = state_of(pid, thread);
    return state == 'T' || state == 'Z';
}

/* On a busy machine a process may get no CPU for longer than the limit. One
 * that would run if it could does not hang: it stands well for now. */
static bool is_starved(const struct watch *watch, int rank)
{
    return watch->peers && peers_same_host(watch->peers, rank, watch->rank) &&
           watch_is_runnable(peers_all(watch->peers)[rank].pid);
}

/* A process of this host that was stopped before it answered the first question
 * will not answer. */
static bool is_stopped(const struct watch *watch, int rank)
{
    return watch->peers && peers_same_host(watch->peers, rank, watch->rank) &&
           watch_is_stopped(peers_all(watch->peers)[rank].pid);
}

/* An answer may be late: one that has answered before is silent only after
 * several looks. Until then it stands well, as one that is starved. */
static bool may_answer(struct watch *watch, int rank)
{
    enum { LOOKS = 3 };
    return is_starved(watch, rank) ||
           (watch->ever_heard[rank] && ++watch->silent[rank] < LOOKS);
}

void watch_look_around(struct watch *watch)
{
    memset(watch->heard, 0, (size_t)watch->size * sizeof *watch->heard);
    if (watch->peers)
        peers_ask(watch->peers, watch->told, watch->heard);
    for (int r = 0; r < watch->size; r++) {
        int n = r - watch->rank;
        if (n >= 0 && n < watch->count) {
            watch->told[r] = seat_tell(watch_own(watch, n));
            watch->heard[r] = true;
        } else if (watch->heard[r]) {
            watch->silent[r] = 0;
        } else if (is_stopped(watch, r)) {
            watch->ever_heard[r] = true;
        } else if (may_answer(watch, r)) {
            watch->told[r] = (struct seat_told){.state = SEAT_RUNS};
            watch->heard[r] = true;
        }
        watch->ever_heard[r] = watch->ever_heard[r] || watch->heard[r];
    }
}

/* --- waits ---------------------------------------------------------------- */

/* Operations that run by themselves: since when the oldest is not done. */
static struct seat_op find_stall(
        struct watch *watch, int n, uint64_t *since_out)
{
    struct own *own = &watch->own[n];
    const struct seat *seat = watch_own(watch, n);
    uint64_t done = atomic_load(&seat->lanes[LANE_OPERATIONS].done);
    struct seat_op op = seat_pending(seat);
    bool stalls = op.word != 0;
    if (stalls && (!own->stalls || own->stall_done != done))
        own->stall_since = watch->last;
    own->stalls = stalls;
    own->stall_done = done;
    *since_out = own->stall_since;
    return op;
}

/* What the rank waits for, and since when; word 0: nothing. */
static struct seat_op find_wait(struct watch *watch, int n, uint64_t *since_out)
{
    const struct seat *seat = watch_own(watch, n);
    struct seat_look look = seat_look(seat);
    struct seat_op stall = find_stall(watch, n, since_out);
    if (look.state != SEAT_WAITS)
        return stall;
    *since_out = look.since;
    return seat_op_at(seat, look.lane, look.number);
}

static bool is_together(const struct watch *watch)
{
    struct seat_look look = seat_look(watch_own(watch, 0));
    return !(
            look.state == SEAT_WAITS && look.lane == LANE_MESSAGES &&
            look.number == 1);
}

static bool judge(
        struct watch *watch, int n, const struct seat_op *wait, double seconds,
        double limit, struct verdict *verdict)
{
    const struct seat *seat = watch_own(watch, n);
    struct verdict_ask ask = {
            .rank = watch->rank + n,
            .work = seat_look(seat).work,
            .wait = *wait,
            .step = atomic_load(&seat->step),
            .seconds = seconds,
            .limit = limit,
            .size = watch->size,
            .told = watch->told,
            .heard = watch->heard,
            .ever_heard = watch->ever_heard,
            .scratch = watch->scratch};
    if (is_together(watch)) {
        watch_look_around(watch);
        return verdict_find(&ask, verdict);
    }
    *verdict = (struct verdict){
            .rank = ask.rank,
            .kind = END_JOIN,
            .exit_code = 75,
            .writer = -1,
            .op = *wait,
            .seconds = seconds};
    return true;
}

/* A wait of a rank of this process that is longer than that, and a hang. */
static bool find_hang(
        struct watch *watch, double limit, struct verdict *verdict)
{
    for (int n = 0; n < watch->count; n++) {
        uint64_t since;
        struct seat_op wait = find_wait(watch, n, &since);
        if (since < watch->floor)
            since = watch->floor;
        double waited = 1e-6 * ((double)watch->last - (double)since);
        if (wait.word && waited > limit &&
            judge(watch, n, &wait, waited, limit, verdict))
            return true;
    }
    return false;
}

bool watch_check_waits(struct watch *watch, struct verdict *verdict)
{
    uint64_t limit = atomic_load(&watch->limit);
    if (limit == 0 || watch->last < watch->next_look)
        return false;
    bool is_hang = find_hang(watch, 1e-6 * (double)limit, verdict);
    watch->next_look = watch->last + (watch->peers ? ASK_AGAIN : LOOK_AGAIN);
    return is_hang;
}

/* --- waits that become long ----------------------------------------------- */

void watch_look_at_stall(struct watch *watch)
{
    const double part = 0.6;
    double limit = part * 1e-6 * (double)atomic_load(&watch->limit);
    struct verdict verdict;
    if (watch->rank != 0 || !watch->listener.stalled || limit <= 0 ||
        !is_together(watch) || watch->last < watch->next_stall_look)
        return;
    watch->next_stall_look = watch->last + ASK_AGAIN / 2;
    bool stalls = find_hang(watch, limit, &verdict);
    if (stalls != watch->is_stalled)
        watch_tell_stalled(watch, stalls ? &verdict : NULL);
    watch->is_stalled = stalls;
}

/* --- files ---------------------------------------------------------------- */

static bool waits(const struct watch *watch)
{
    for (int n = 0; n < watch->count; n++)
        if (seat_look(watch_own(watch, n)).state == SEAT_WAITS)
            return true;
    return false;
}

/* While a save's or load's own thread waits for others nothing of it can be
 * done. */
static bool check_file(struct watch *watch, struct comm_files *files)
{
    bool is_there = atomic_load(&files->what) != NULL;
    uint64_t completed = atomic_load(&files->progress.completed);
    bool is_held = atomic_load(&files->is_held) && waits(watch);
    if (is_there &&
        (!files->was_there || completed != files->completed || is_held))
        files->since = watch->last;
    files->was_there = is_there;
    files->completed = completed;
    uint64_t since = files->since > watch->floor ? files->since : watch->floor;
    return is_there &&
           (double)(watch->last - since) > 1e6 * watch->facts.files_timeout;
}

bool watch_check_files(struct watch *watch, struct verdict *verdict)
{
    if (watch->facts.files_timeout <= 0)
        return false;
    for (int i = 0; i < WATCH_FILES_MAX; i++) {
        struct comm_files *files = &watch->files[i];
        if (!check_file(watch, files))
            continue;
        if (files->goes_on && files->goes_on(files->ctx)) {
            files->since = watch->last;
            continue;
        }
        *verdict = (struct verdict){
                .rank = watch->rank,
                .kind = END_FILES,
                .exit_code = 74,
                .writer = watch->rank,
                .step = atomic_load(&watch_own(watch, 0)->step),
                .seconds = watch->facts.files_timeout,
                .files = (uint32_t)i};
        return true;
    }
    return false;
}

/* --- who started this process --------------------------------------------- */

bool watch_check_launcher(struct watch *watch, struct verdict *verdict)
{
    if (!watch->facts.is_launched || (int)getppid() == watch->launcher)
        return false;
    int first = watch->peers ? 0 : watch->rank; /* of this host */
    while (first < watch->rank &&
           !peers_same_host(watch->peers, first, watch->rank))
        first++;
    *verdict = (struct verdict){
            .rank = watch->rank,
            .kind = END_LAUNCHER,
            .exit_code = 75,
            .writer = first,
            .step = atomic_load(&watch_own(watch, 0)->step)};
    return true;
}
