/* guest.h - a device buffer through which host data passes part by part to be
 * updated on the device: chunks of the engine (visit.c), and states that do not
 * fit on the device (zero/paged.c).
 *
 *     up       | copy | arrived              | next copy |
 *     compute                   | update | updated
 *     down                                          | copy | left
 *
 * The next one comes up once the one before has left. */
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
/* The copies (GUEST_COPIES of them, of 0 bytes where there are fewer) once
 * `after` has happened; then `done` has. */
enum zd_status guest_move(
        struct stream *stream, struct event *after,
        const struct guest_copy *copies, struct event *done);
