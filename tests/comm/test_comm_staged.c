/* The suite through staged collectives on the CPU device, whose streams are
 * inline or threads, over ranks as threads; TAP. Also under a thread sanitizer,
 * which finds events that are not waited for: fewer ranks there. */
#include "tests/comm/group.h"
#include "tests/support/tap.h"

static const struct group_case groups[] = {
        {"threads", 2, 0, STREAM_THREAD, 300000},
        {"threads", 3, 0, STREAM_THREAD, 8192},
        {"threads", 4, 2, STREAM_THREAD, 65536},
#ifndef __SANITIZE_THREAD__
        {"inline", 2, 0, STREAM_INLINE, 300000},
        {"threads", 1, 0, STREAM_THREAD, 300000},
        {"threads", 8, 4, STREAM_THREAD, 300000},
#endif
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

int main(void)
{
    for (int g = 0; g < GROUPS; g++)
        group_run(&groups[g]);
    return tap_done();
}
