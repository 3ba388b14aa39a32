/* spin.c - OpenMP's threads spin a short while at a barrier, then sleep.
 *
 * libgomp's threads spin for some 3 ms at every barrier before they sleep.
 * Where other programs want the cores too, who is waited for was put aside, and
 * who spins takes the core that it needs (docs/measured/cpu.md has figures).
 * GOMP_SPINCOUNT says how long; libgomp reads it in a constructor, before main,
 * and has no call for it.
 *
 * Functions of .preinit_array run before all constructors, but libc has no
 * environment yet: setenv would be in vain. They are given the array itself,
 * which has no room for one entry more. So the place of a variable that means
 * something to shells alone is lent to ours, and our own constructor, which
 * runs behind those of the libraries, gives it back: main, and programs that
 * it starts, see the environment as it came. Where none of them is set (and
 * where the user has said how to wait) libgomp is left alone.
 *
 * Programs get this by openmp_dep (meson.build). There is nothing to call. */
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static char spin_count[] = "GOMP_SPINCOUNT=1000"; /* some 10 to 50 us */
static char *lent;                                /* NULL: nothing is */
static char **lent_at;

/* Here the address sanitizer has no shadow yet, nor the others theirs, and what
 * they put in a string function's place must not be called. */
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

/* The name is what the linker is asked for: nothing else refers to this file.
 */
extern void (*const zd_spin_lend[])(int, char **, char **);
__attribute__((section(".preinit_array"), used)) void (*const zd_spin_lend[])(
        int, char **, char **) = {lend};
