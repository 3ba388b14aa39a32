/* tee.h - an observer that queues each call as a message, then calls the next
 * observer for the banner, steps and the end. */
#pragma once

#include "daemon/state/queue.h"

struct tee {
    struct message_queue *queue;
    const struct train_observer *next; /* borrowed; hears banner, steps, end */
    const char *socket_path;           /* told in the banner; or NULL */
};

/* Calls that go to `tee`, which must outlive them. */
struct train_observer tee_observer(struct tee *tee);
