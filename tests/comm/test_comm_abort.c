/* What mpirun gives back when a rank ends the job or is stopped, and that it
 * does so soon; TAP. Arguments: mpirun, the program of test_comm_mpi. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int number, failed;

/* error: what the one line of an error is wanted to have; NULL: none is wanted.
 */
static void expect(
        char **argv, int ranks, const char *arguments, int code,
        const char *error, const char *what)
{
    char command[4096], line[1024];
    int named = 0, others = 0;
    snprintf(
            command, sizeof command,
            "timeout 100 '%s' --oversubscribe -np %d '%s' %s 2>&1 </dev/null",
            argv[1], ranks, argv[2], arguments);
    FILE *said = popen(command, "r");
    while (said && fgets(line, sizeof line, said)) {
        bool is_error = strncmp(line, "error", 5) == 0;
        named += is_error && error && strstr(line, error);
        others += is_error && !(error && strstr(line, error));
    }
    int status = said ? pclose(said) : -1;
    bool holds = WIFEXITED(status) && WEXITSTATUS(status) == code &&
                 named == (error != NULL) && others == 0;
    if (!holds)
        printf("# status %x, %d errors, and %d others\n", (unsigned)status,
               named, others);
    failed += !holds;
    printf("%s %d - %s\n", holds ? "ok" : "not ok", ++number, what);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    expect(argv, 3, "--abort 75", 75, NULL, "a rank ends the job with 75");
    expect(argv, 3, "--abort 65", 65, NULL, "a rank ends the job with 65");
    expect(argv, 8, "--stop 5", 75, "]: rank 5 on ",
           "of 2 x 2 x 2 ranks the one that is stopped is named");
    printf("1..%d\n", number);
    return failed;
}
