/* hang_calls.c - makes a rank hang, preloaded:
 *
 *   SIGRTMIN                   the thread that gets it loops without end
 *   ZEROD_TEST_HANG_FILES=TEXT an fsync of a file whose path has TEXT in it, on
 *                              the rank ZEROD_TEST_HANG_RANK, never returns */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void loop(int signal_number)
{
    (void)signal_number;
    for (;;)
        __asm__ volatile("");
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_handler = loop};
    sigaction(SIGRTMIN, &action, NULL);
}

static int hangs(int fd)
{
    const char *text = getenv("ZEROD_TEST_HANG_FILES");
    const char *rank = getenv("ZEROD_TEST_HANG_RANK");
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    char link[64], path[4096];
    if (!text || !rank || strcmp(own ? own : "0", rank) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    return strstr(path, text) != NULL;
}

int fsync(int fd)
{
    static int (*real)(int fd);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    while (hangs(fd))
        pause();
    return real(fd);
}
