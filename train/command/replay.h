/* replay.h - the commands of an events.jsonl, given again each at its step, so
 * that another run comes to the same weights. Internal to train; rank 0.
 *
 * Given are set, checkpoint, eval and sample that were done; pause, resume,
 * stop and profile change no bit. `resumed` events are honored: what a crash
 * undid is left out (docs/control.md, Events). */
#ifndef ZD_TRAIN_COMMAND_REPLAY_H
#define ZD_TRAIN_COMMAND_REPLAY_H

#include "train/job/control.h"

struct replay;

/* Commands of `also` (NULL: none) come between those of the file, and are told
 * to it alone. ZD_ERR_NO_INPUT (E1012) when there is no such file, ZD_ERR_DATA
 * (E1013) naming the line that is none; a last line without its end is left
 * out. */
enum zd_status replay_open(
        const char *path, const struct train_control *also,
        struct replay **out);
void replay_close(struct replay *replay);
/* Good until replay_close. */
const struct train_control *replay_control(const struct replay *replay);
int replay_count(const struct replay *replay); /* commands to give */

#endif
