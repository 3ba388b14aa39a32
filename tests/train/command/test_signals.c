/* What train/command/signals.h promises of the threads that signals meet. */
#include "train/command/signals.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static const int handled[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT};

static const struct run_options options = {
        .on_sigusr1 = ON_SIGNAL_CHECKPOINT,
        .on_sigusr2 = ON_SIGNAL_CHECKPOINT_AND_EXIT,
        .on_sigterm = ON_SIGNAL_EXIT};

static void *count_open(void *count)
{
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (size_t i = 0; i < sizeof handled / sizeof handled[0]; i++)
        *(int *)count += !sigismember(&mask, handled[i]);
    return NULL;
}

/* A thread that computes may have no stack to run a handler on. */
Test(signals, no_thread_that_computes_takes_one)
{
    pthread_t later;
    int open = 0;
    count_open(&open);
    cr_assert_eq(open, 4);
    signals_install(&options);
    open = 0;
    count_open(&open);
    cr_assert_eq(open, 0);
    cr_assert_eq(pthread_create(&later, NULL, count_open, &open), 0);
    pthread_join(later, NULL);
    cr_assert_eq(open, 0);
}

/* The flags that a signal to the whole process raises, within a minute. */
static int64_t raised_by(int number)
{
    int64_t flags = 0;
    cr_assert_eq(kill(getpid(), number), 0);
    for (int i = 0; i < 6000 && !flags; i++) {
        flags = signals_take(0);
        usleep(10000);
    }
    return flags;
}

Test(signals, each_raises_its_flag_once)
{
    signals_install(&options);
    signals_install(&options); /* each rank of a process does */
    cr_assert_eq(raised_by(SIGUSR1), SIGNALS_SAVE);
    cr_assert_eq(raised_by(SIGUSR2), SIGNALS_SAVE_EXIT);
    cr_assert_eq(raised_by(SIGTERM), SIGNALS_EXIT);
    cr_assert_eq(signals_take(0), 0);
}

Test(signals, a_second_request_to_end_ends_at_once, .exit_code = 75)
{
    signals_install(&options);
    cr_assert_eq(raised_by(SIGINT), SIGNALS_EXIT);
    kill(getpid(), SIGINT);
    sleep(60);
}
