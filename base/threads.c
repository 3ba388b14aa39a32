#include "base/threads.h"

#include <signal.h>
#include <stdio.h>

int thread_start(
        pthread_t *thread_out, const char *name, void *(*body)(void *),
        void *ctx)
{
    char short_name[16]; /* what the system takes */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int refused = pthread_create(thread_out, NULL, body, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (refused)
        return refused;
    snprintf(short_name, sizeof short_name, "%.15s", name);
    pthread_setname_np(*thread_out, short_name);
    return 0;
}
