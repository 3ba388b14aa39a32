/* stub.h - a job that is none: a thread that listens on a unix socket and plays
 * recorded answers of docs/control.md, well or badly. */
#ifndef ZD_TESTS_DAEMON_CTL_STUB_H
#define ZD_TESTS_DAEMON_CTL_STUB_H

#include <stdbool.h>

enum stub_manner {
    STUB_PLAIN,   /* Content-Length */
    STUB_CLOSE,   /* until the connection ends */
    STUB_DRIBBLE, /* a byte at a time */
    STUB_SLOW,    /* commands take 1.5 s */
    STUB_HANG,    /* never answers */
    STUB_GARBAGE, /* no HTTP */
    STUB_CUT,     /* less than Content-Length says */
    STUB_DEAF,    /* closes at once */
    STUB_NO_JSON,
    STUB_READONLY, /* commands: 403 */
    STUB_BUSY,     /* commands: 409 */
    STUB_FAILING,  /* commands: 500 */
    STUB_ENDING    /* everything: 503 */
};

struct stub;

/* `answers`: the folder of recorded answers. NULL: it cannot listen. */
struct stub *stub_start(
        const char *socket, const char *answers, enum stub_manner manner);
/* The body of the last POST, and how many requests came. */
const char *stub_last_body(struct stub *stub);
int stub_requests(struct stub *stub);
void stub_stop(struct stub *stub);

/* "plain", "chunked", ..; -1: none. */
int stub_find_manner(const char *name);

#endif
