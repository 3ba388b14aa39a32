/* early.c - a library whose constructor sets a variable, as some do: libc then
 * has a copy of the environment. */
#include <stdlib.h>

int early_is_here(void);

int early_is_here(void)
{
    return 1;
}

__attribute__((constructor)) static void set_early(void)
{
    if (getenv("TEST_SETS_EARLY"))
        setenv("TEST_SET_EARLY", "1", 1);
}
