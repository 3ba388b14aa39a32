/* hang.h - a hang is an event, and what may become one a state of the run
 * (comm/watch/watch.h finds both). Internal to train.
 */
#ifndef ZD_TRAIN_TRAINER_HANG_H
#define ZD_TRAIN_TRAINER_HANG_H

#include <limits.h>

struct trainer;
struct train_observer;

struct hang_told {         /* used by the watch's thread */
    struct events *events; /* rank 0's; NULL elsewhere */
    const struct train_observer *observer;
    char path[PATH_MAX]; /* of events.jsonl */
};

/* Rank 0 tells it; where its process does not run another rank writes it behind
 * what is there. From hang_listen to hang_forget, on all ranks. */
void hang_listen(struct trainer *trainer, const char *path);
void hang_forget(struct trainer *trainer);

#endif
