/* release.h - the device's memory of a paused run, given back to the system and
 * taken again, bit for bit and at the same addresses. Internal to train.
 *
 *   trainer_release   this rank's device arena goes to memory of the host, or
 *                     to output_dir/.released-rank-NNNNN, then its memory goes
 *   trainer_retake    the memory is taken and filled from there; the digest of
 *                     a file is compared; file or memory of the host go
 *
 * Where to: control.release_to. "auto" takes the host's memory for a GPU's
 * arena where twice as much of it is free. The CPU device's lies there already,
 * so it goes to a file. Host and pinned arenas stay: on a GPU machine they are
 * no part of the device.
 *
 * Both are collective, and made between steps. A failure is the same status on
 * all ranks (comm_agree) and leaves them as they were: an arena that cannot be
 * written stays, one that cannot be read stays released and its files too, so
 * that resume may be tried again. The files hold nothing that a checkpoint does
 * not: a crash while released loses nothing that was committed. */
#ifndef ZD_TRAIN_COMMAND_RELEASE_H
#define ZD_TRAIN_COMMAND_RELEASE_H

#include "base/status.h"

#include <stdint.h>

struct trainer;

/* *bytes_out: device memory that all ranks gave back; may be NULL. Released
 * already: ZD_OK and 0. Errors: E1020 and E1024 no room, and those of files. */
enum zd_status trainer_release(struct trainer *trainer, uint64_t *bytes_out);
/* Not released: ZD_OK. Errors: E1022 the memory is not there any more, E1021 a
 * file is not what was written, and those of files. */
enum zd_status trainer_retake(struct trainer *trainer);
/* After something for which a released run took its memory: give it back as
 * before, or say that it stays. A status is one that ends the run. */
enum zd_status release_again(struct trainer *trainer);
/* The end of a run that was never resumed: this rank's file goes. */
void trainer_release_fini(struct trainer *trainer);

#endif
