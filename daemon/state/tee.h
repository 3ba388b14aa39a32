/* tee.h - an observer that puts what it hears into a queue, and then tells the
 * next one of the banner, of steps and of the end. */
#ifndef ZD_DAEMON_STATE_TEE_H
#define ZD_DAEMON_STATE_TEE_H

#include "daemon/state/queue.h"

struct tee {
    struct message_queue *queue;
    const struct train_observer *next; /* borrowed */
    const char *socket_path;           /* told in the banner; or NULL */
};

/* Calls that go to `tee`, which must outlive them. `control` is next's. */
struct train_observer tee_observer(struct tee *tee);

#endif
