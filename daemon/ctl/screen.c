#include "daemon/ctl/screen.h"

#include "base/text_stream.h"
#include "daemon/cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static volatile sig_atomic_t is_taken;

/* Second screen, no cursor, no line wrap; and back. */
static const char enter[] = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
static const char leave[] = "\033[?7h\033[?25h\033[0m\033[?1049l";

static void write_all(const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        bytes -= (size_t)n;
    }
}

void screen_restore(void)
{
    int cause = errno;
    if (is_taken) {
        is_taken = 0;
        write_all(leave, sizeof leave - 1);
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    errno = cause;
}

/* What ends the program: give the screen back, then end as it would have. */
static void end_by(int number)
{
    screen_restore();
    signal(number, SIG_DFL);
    raise(number);
}

static void note_size(int number)
{
    (void)number; /* it ends the wait for a key */
}

bool screen_take(void)
{
    static const int ends[] = {SIGHUP,  SIGINT, SIGQUIT, SIGTERM, SIGABRT,
                               SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
    struct sigaction action = {.sa_handler = end_by};
    if (!isatty(STDIN_FILENO) || !output_is_terminal(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        sigaction(ends[i], &action, NULL);
    action.sa_handler = note_size;
    sigaction(SIGWINCH, &action, NULL);
    atexit(screen_restore);
    fflush(stdout);
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all(enter, sizeof enter - 1);
    is_taken = 1;
    return true;
}

void screen_draw(const char *text, int rows)
{
    char *out = NULL;
    size_t bytes;
    FILE *stream = text_stream_open(&out, &bytes);
    fputs("\033[H", stream);
    while (*text && rows-- > 0) {
        size_t length = strcspn(text, "\n");
        bool ends = text[length] == '\n';
        fprintf(stream, "%.*s\033[K%s", (int)length, text, ends ? "\r\n" : "");
        text += length + ends;
    }
    fputs("\033[J", stream);
    if (fclose(stream) == 0)
        write_all(out, bytes);
    free(out);
}

int screen_key(double seconds)
{
    struct pollfd keys = {STDIN_FILENO, POLLIN, 0};
    unsigned char key;
    int ready = poll(&keys, 1, (int)(seconds * 1000));
    if (ready <= 0)
        return 0;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    return n == 1 ? key : n < 0 && errno == EINTR ? 0 : -1;
}
