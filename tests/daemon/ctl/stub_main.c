/* stub_main.c - the stub as a program: ctl_stub SOCKET ANSWERS MANNER. Prints
 * "ready" when it listens, and ends with its standard input. */
#include "tests/daemon/ctl/stub.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char byte;
    int manner = argc == 4 ? stub_find_manner(argv[3]) : -1;
    if (manner < 0) {
        fputs("usage: ctl_stub SOCKET ANSWERS MANNER\n", stderr);
        return 64;
    }
    struct stub *stub = stub_start(argv[1], argv[2], (enum stub_manner)manner);
    if (!stub)
        return 73;
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
    stub_stop(stub);
    return 0;
}
