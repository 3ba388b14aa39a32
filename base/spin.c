/* spin.c - OpenMP's threads spin a short while at a barrier, then sleep.
 *
 * libgomp's threads spin for some 3 ms at every barrier before they sleep. When
 * other programs want the cores too, the thread that is waited for may be
 * descheduled, and a spinning thread holds the core that it needs (figures:
 * docs/measured/cpu.md). GOMP_SPINCOUNT says how long; libgomp reads it in a
 * constructor, before main, and has no call for it.
 *
 * Functions of .preinit_array run before all constructors, but libc has no
 * environment yet, so setenv has no effect. They get the environment's array
 * itself, which has no room for another entry. So our variable temporarily
 * replaces one that only shells use. Our own constructor, which runs after
 * those of the libraries, restores it: main, and programs that it starts, see
 * the original environment. If none of those variables is set, or the user has
 * chosen how to wait, libgomp is left alone.
 *
 * Programs get this by openmp_dep (meson.build). There is nothing to call. */
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static char spin_count[] = "GOMP_SPINCOUNT=1000"; /* some 10 to 50 us */
static char *lent;                                /* NULL: nothing is */
static char **lent_at;

/* The sanitizers are not set up yet at this point, so code must not be
 * instrumented, nor call string functions that they intercept. */
#define BEFORE_ALL                                                             \
    __attribute__((no_sanitize("address", "thread", "undefined")))

BEFORE_ALL static bool has_name(const char *entry, const char *name)
{
    while (*name && *entry == *name) {
        entry++;
        name++;
    }
    return !*name && *entry == '=';
}

BEFORE_ALL static char **find(char **environment, const char *name)
{
    for (char **entry = environment; *entry; entry++)
        if (has_name(*entry, name))
            return entry;
    return NULL;
}

BEFORE_ALL static void lend(int argc, char **argv, char **environment)
{
    static const char *const names[] = {"_",         "OLDPWD", "SHLVL",
                                        "LS_COLORS", "PWD",    "LOGNAME",
                                        "TERM",      "SHELL",  "PATH"};
    if (find(environment, "GOMP_SPINCOUNT") ||
        find(environment, "OMP_WAIT_POLICY"))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lent_at = find(environment, names[i]);
        if (lent_at) {
            lent = *lent_at;
            *lent_at = spin_count;
            return;
        }
    }
}

#undef BEFORE_ALL

/* A library's constructor that sets a variable has made a copy of the array. */
__attribute__((constructor)) static void give_back(void)
{
    if (!lent)
        return;
    *lent_at = lent;
    for (char **entry = environ; entry && *entry; entry++)
        if (*entry == spin_count)
            *entry = lent;
}

/* The linker is told to keep this symbol: nothing else refers to this file. */
extern void (*const zd_spin_lend[])(int, char **, char **);
__attribute__((section(".preinit_array"), used)) void (*const zd_spin_lend[])(
        int, char **, char **) = {lend};
