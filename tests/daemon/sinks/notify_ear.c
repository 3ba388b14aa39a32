/* notify_ear.c - systemd's end of NOTIFY_SOCKET: binds PATH and prints what it
 * is told, a datagram's lines each, until it is killed. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char text[4096];
    ssize_t bytes;
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path)
        return 64;
    strcpy(address.sun_path, argv[1]);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return 74;
    while ((bytes = recv(fd, text, sizeof text, 0)) >= 0) {
        printf("%.*s\n", (int)bytes, text);
        fflush(stdout);
    }
    return 74;
}
