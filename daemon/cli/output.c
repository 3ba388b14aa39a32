#include "daemon/cli/output.h"

#include "base/printable.h"
#include "base/text_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void output_init(void)
{
    signal(SIGPIPE, SIG_IGN);
    json_must_have_memory();
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        /* stdout is opened for reading: writing there must fail, not vanish */
        int opened = open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
        if (opened != fd)
            _exit(74);
    }
}

FILE *output_begin(struct output *output)
{
    *output = (struct output){0};
    output->stream = text_stream_open(&output->text, &output->bytes);
    return output->stream;
}

/* Why stdout did not take something: stdio keeps that it did not, and forgets
 * why. */
static int refusal;

void output_end(struct output *output)
{
    fclose(output->stream);
    errno = 0;
    struct printable to = printable_to(stdout);
    printable_put(&to, output->text, output->bytes);
    printable_end(&to);
    fflush(stdout); /* of a rank: before the others end, which ends it */
    if (ferror(stdout) && !refusal)
        refusal = errno;
    free(output->text);
}

void output_json(const json_t *json)
{
    struct output output;
    json_dumpf(
            json, output_begin(&output),
            JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', output.stream);
    output_end(&output);
}

int output_finish(int code)
{
    errno = 0;
    bool is_bad = fflush(stdout) != 0;
    int cause = refusal ? refusal : errno;
    struct pollfd reader = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (!is_bad && !ferror(stdout))
        return code;
    /* a flush before this one failed: stdio has forgotten why */
    if (!cause && poll(&reader, 1, 0) == 1 && reader.revents & POLLERR)
        cause = EPIPE;
    if (code != 0)
        return code; /* the first failure is the cause */
    if (cause != EPIPE)
        fprintf(stderr, "error[E0790]: cannot write the result: %s\n",
                strerror(cause ? cause : EIO));
    return 74;
}

bool output_is_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && term[0] && strcmp(term, "dumb") != 0;
}

int output_columns(int fd)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

bool output_has_color(int fd)
{
    const char *no_color = getenv("NO_COLOR");
    return output_is_terminal(fd) && !(no_color && no_color[0]);
}
