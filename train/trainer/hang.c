#include "train/trainer/hang.h"

#include "train/trainer/trainer.h"

#include <string.h>

static void tell(void *ctx, const struct watch_hang *hang)
{
    const struct hang_told *told = ctx;
    json_t *members = json_pack(
            "{s:i, s:s, s:s, s:f}", "rank", hang->rank, "host", hang->host,
            "operation", hang->operation, "seconds", hang->seconds);
    if (told->events) {
        events_tell(told->events, "hang", hang->step, members);
        events_sync(told->events);
    } else {
        events_append(told->path, "hang", hang->step, members);
    }
}

static void tell_stalled(void *ctx, const struct watch_hang *hang)
{
    const struct hang_told *told = ctx;
    const struct train_observer *observer = told->observer;
    if (observer->stalled)
        observer->stalled(observer->ctx, hang);
}

void hang_listen(struct trainer *trainer, const char *path)
{
    struct watch_listener listener = {
            .ctx = &trainer->hang, .hang = tell, .stalled = tell_stalled};
    trainer->hang.observer = trainer->observer;
    strcpy(trainer->hang.path, path);
    trainer->hang.events = trainer->events;
    comm_listen(trainer->comm, &listener);
}

void hang_forget(struct trainer *trainer)
{
    comm_listen(trainer->control, &(struct watch_listener){0});
}
