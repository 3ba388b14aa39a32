/* tee.h - an observer that tells a feed, and then the next observer. */
#ifndef ZD_DAEMON_STATE_TEE_H
#define ZD_DAEMON_STATE_TEE_H

#include "daemon/state/feed.h"

struct tee {
    struct feed *feed;
    const struct train_observer *next; /* borrowed */
    const char *socket_path;           /* told in the banner; or NULL */
};

/* Calls that go to `tee`, which must outlive them. `control` is next's. */
struct train_observer tee_observer(struct tee *tee);

#endif
