#include "offload/guest.h"

enum zd_status guest_create(struct guest *guest, char *buffer)
{
    guest->buffer = buffer;
    ZD_TRY(event_create(&guest->arrived));
    ZD_TRY(event_create(&guest->updated));
    return event_create(&guest->left);
}

void guest_destroy(struct guest *guest)
{
    event_destroy(guest->arrived);
    event_destroy(guest->updated);
    event_destroy(guest->left);
}

enum zd_status guest_move(
        struct stream *stream, struct event *after,
        const struct guest_copy *copies, struct event *done)
{
    ZD_TRY(stream_wait(stream, after));
    for (int i = 0; i < GUEST_COPIES; i++)
        if (copies[i].bytes)
            ZD_TRY(stream_copy(
                    stream, copies[i].to, copies[i].from, copies[i].bytes));
    return stream_record(stream, done);
}
