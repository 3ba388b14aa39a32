/* What the watch checks: waits, files, the process that started this one. */
#include "comm/watch/private.h"

#include <dirent.h>
#include <stdio.h>
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

/* On a busy machine a process may get no CPU for longer than the limit. A
 * runnable process does not hang: it counts as well for now. */
static bool is_starved(const struct watch *watch, int rank)
{
    return watch->peers && watch_same_host(watch, rank) &&
           watch_is_runnable(watch->about[rank].pid);
}

/* A process of this host that was stopped before it answered the first question
 * will not answer. */
static bool is_stopped(const struct watch *watch, int rank)
{
    return watch->peers && watch_same_host(watch, rank) &&
           watch_is_stopped(watch->about[rank].pid);
}

/* An answer may be late: a rank that has answered before counts as silent only
 * after several checks without an answer. Until then it counts as well, like a
 * starved one. */
static bool may_answer(struct watch *watch, int rank)
{
    enum { LOOKS = 3 };
    struct rank_known *known = &watch->ranks[rank];
    return is_starved(watch, rank) ||
           (known->ever_heard && ++known->silent < LOOKS);
}

void watch_look_around(struct watch *watch)
{
    for (int r = 0; r < watch->size; r++)
        watch->ranks[r].heard = false;
    if (watch->peers)
        peers_ask(watch->peers);
    for (int r = 0; r < watch->size; r++) {
        struct rank_known *known = &watch->ranks[r];
        if (watch_has(watch, r)) {
            known->told = seat_tell(&watch->seats[r - watch->rank]);
            known->heard = true;
        } else if (known->heard) {
            known->silent = 0;
        } else if (is_stopped(watch, r)) {
            known->ever_heard = true;
        } else if (may_answer(watch, r)) {
            known->told = (struct seat_told){.state = SEAT_RUNS};
            known->heard = true;
        }
        known->ever_heard |= known->heard;
    }
}

/* --- waits ---------------------------------------------------------------- */

static bool is_together(const struct watch *watch)
{
    return seat_tell(watch->seats).waits.kind != SEAT_JOIN;
}

/* The nth rank here has waited for so long in what it told. */
static bool judge(
        struct watch *watch, int n, const struct seat_told *told,
        double seconds, double limit, struct verdict *verdict)
{
    const struct verdict_ask ask = {
            .rank = watch->rank + n,
            .size = watch->size,
            .seconds = seconds,
            .limit = limit,
            .ranks = watch->ranks};
    if (is_together(watch)) {
        watch_look_around(watch);
        return watch->ranks[ask.rank].told.since == told->since &&
               verdict_find(&ask, verdict);
    }
    *verdict = (struct verdict){
            .rank = ask.rank,
            .kind = END_JOIN,
            .exit_code = 75,
            .writer = -1,
            .op = told->waits,
            .seconds = seconds};
    return true;
}

/* A wait of a rank of this process that is longer than the limit, and a
 * hang. */
static bool find_hang(
        struct watch *watch, double limit, struct verdict *verdict)
{
    for (int n = 0; n < watch->count; n++) {
        struct seat_told told = seat_tell(&watch->seats[n]);
        uint64_t since = told.since > watch->floor ? told.since : watch->floor;
        double waited = 1e-6 * ((double)watch->last - (double)since);
        if (told.waits.kind && waited > limit &&
            judge(watch, n, &told, waited, limit, verdict))
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
        if (seat_tell(&watch->seats[n]).state == SEAT_WAITS)
            return true;
    return false;
}

/* A save or load whose own thread waits for other ranks cannot make progress:
 * stop its clock. */
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
                .step = seat_tell(watch->seats).step,
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
    while (first < watch->rank && !watch_same_host(watch, first))
        first++;
    *verdict = (struct verdict){
            .rank = watch->rank,
            .kind = END_LAUNCHER,
            .exit_code = 75,
            .writer = first,
            .step = seat_tell(watch->seats).step};
    return true;
}
