#include "base/threads.h"

#include <signal.h>
#include <stdio.h>

int thread_start(
        pthread_t *thread_out, const char *name, void *(*body)(void *),
        void *ctx)
{
    char short_name[16]; /* the longest that the system takes */
    /* A blocked fault ends the process before its handler can run. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int refused = pthread_create(thread_out, NULL, body, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused)
        return refused;
    snprintf(short_name, sizeof short_name, "%.15s", name);
    pthread_setname_np(*thread_out, short_name);
    return 0;
}
