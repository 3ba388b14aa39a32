/* environment.c - prints the environment that main was given and the one that
 * libc has, of a program with OpenMP. */
#include <omp.h>
#include <stdio.h>
#include <unistd.h>

int early_is_here(void); /* of early.c: else it would not be linked */

int main(int argc, char **argv, char **environment)
{
    for (char **entry = environment; *entry; entry++)
        printf("main %s\n", *entry);
    for (char **entry = environ; entry && *entry; entry++)
        printf("libc %s\n", *entry);
    return omp_get_max_threads() < 1 || !early_is_here();
}
