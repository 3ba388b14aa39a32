/* What mpirun gives back when a rank ends the job, and that it does so soon;
 * TAP. Arguments: mpirun, the program of test_comm_mpi. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    static const int codes[] = {75, 65};
    int failed = 0;
    if (argc != 3)
        return 2;
    printf("1..2\n");
    for (int i = 0; i < 2; i++) {
        char command[4096];
        snprintf(
                command, sizeof command,
                "timeout 100 '%s' --oversubscribe -np 3 '%s' --abort %d "
                "2>/dev/null "
                "</dev/null",
                argv[1], argv[2], codes[i]);
        int status = system(command);
        int holds = WIFEXITED(status) && WEXITSTATUS(status) == codes[i];
        failed += !holds;
        printf("%s %d - mpirun ends with %d, as the rank that ended the job\n",
               holds ? "ok" : "not ok", i + 1, codes[i]);
    }
    return failed;
}
