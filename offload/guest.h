/* guest.h - a device buffer to which host data is copied, piece by piece, for
 * an update on the device: chunks of the engine (visit.c), and states that do
 * not fit the device (zero/paged.c).
 *
 *     up       | copy | arrived              | next copy |
 *     compute                   | update | updated
 *     down                                          | copy | left
 *
 * The next copy up waits for the previous copy down. */
#pragma once

#include "base/device/stream.h"

struct guest {
    char *buffer;
    struct event *arrived, *updated, *left;
};
struct guest_copy {
    void *to;
    const void *from;
    size_t bytes;
};
enum { GUEST_COPIES = 2 };

enum zd_status guest_create(struct guest *guest, char *buffer);
void guest_destroy(struct guest *guest); /* all-zero is accepted */
/* Queues up to GUEST_COPIES copies (unused ones have 0 bytes) after the event
 * `after`, and records `done`. */
enum zd_status guest_move(
        struct stream *stream, struct event *after,
        const struct guest_copy *copies, struct event *done);
