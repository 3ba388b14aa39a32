#include "train/command/signals.h"

#include "base/clock.h"
#include "base/threads.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* The only state that the handler touches; process-wide, as signals are. The
 * handler runs in its own thread, and ranks may be threads: lock-free atomics
 * are safe for both. */
enum { USR1, USR2, TERM, KINDS };
static atomic_int pending[KINDS], term_count;
static struct timespec term_at; /* written once, before pending[TERM] */
/* The job's options; ranks that are threads of one process set the same. */
static struct run_options wanted;
static pthread_mutex_t wanted_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool cut_short;

#define HANDLED 4
static const int numbers[HANDLED] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};
static bool is_taken; /* signals have their own thread; written once */

static void on_signal(int number)
{
    int kind = number == SIGUSR1 ? USR1 : number == SIGUSR2 ? USR2 : TERM;
    if (kind == TERM) {
        if (++term_count > 1)
            _Exit(75); /* second signal: exit now, without a save */
        clock_gettime(CLOCK_MONOTONIC, &term_at);
    }
    pending[kind] = 1;
}

static void handled_signals(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < HANDLED; i++)
        sigaddset(set, numbers[i]);
}

static void *take_signals(void *unused)
{
    sigset_t set;
    handled_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;)
        pause();
    return unused;
}

/* A handler runs on the stack of the thread that receives the signal, but a
 * computing thread may not have one: oneDNN's generated code uses the stack
 * pointer for heap data, which a handler's frame would overwrite. So one thread
 * receives all signals; threads that start later inherit the blocked mask. */
static void start_taking(void)
{
    pthread_t thread;
    if (thread_start(&thread, "zerod-signals", take_signals, NULL) != 0)
        return; /* then any thread runs the handlers */
    pthread_detach(thread);
    is_taken = true;
}

static void leave_to_their_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t set;
    pthread_once(&once, start_taking);
    handled_signals(&set);
    if (is_taken)
        pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void signals_install(const struct run_options *options)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    pthread_mutex_lock(&wanted_lock);
    wanted = *options;
    pthread_mutex_unlock(&wanted_lock);
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < HANDLED; i++)
        sigaction(numbers[i], &action, NULL);
    leave_to_their_thread();
    /* write reports a closed pipe and the file size limit as errors */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

static const int64_t flags_of[] = {
        [ON_SIGNAL_CHECKPOINT] = SIGNALS_SAVE,
        [ON_SIGNAL_CHECKPOINT_AND_EXIT] = SIGNALS_SAVE_EXIT,
        [ON_SIGNAL_EXIT] = SIGNALS_EXIT};

/* Open MPI's mpirun sends KILL one second after TERM (odls_base_sigkill_timeout
 * extends it); srun waits Slurm's KillWait. */
static double grace_seconds(void)
{
    const char *timeout = getenv("OMPI_MCA_odls_base_sigkill_timeout");
    if (!getenv("OMPI_COMM_WORLD_SIZE"))
        return 30;
    double seconds = timeout ? atof(timeout) : 1.0;
    return seconds > 0 ? seconds : 1.0;
}

static struct run_options wanted_now(void)
{
    ZD_LOCKED(&wanted_lock);
    return wanted;
}

int64_t signals_take(double save_seconds)
{
    int64_t flags = 0;
    const struct run_options options = wanted_now();
    const enum on_signal asked[KINDS] = {
            options.on_sigusr1, options.on_sigusr2, options.on_sigterm};
    for (int kind = 0; kind < KINDS; kind++) {
        if (!atomic_exchange(&pending[kind], 0))
            continue;
        int64_t flag = flags_of[asked[kind]];
        double gone = clock_seconds() - (double)term_at.tv_sec -
                      1e-9 * (double)term_at.tv_nsec;
        if (kind == TERM && flag != SIGNALS_EXIT &&
            gone + save_seconds > 0.5 * grace_seconds()) {
            cut_short = true;
            flag = SIGNALS_EXIT;
        }
        flags |= flag;
    }
    return flags;
}

bool signals_cut_short(void)
{
    return cut_short;
}
