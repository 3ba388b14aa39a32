/* control.h - the control thread of rank 0: loop, socket, routes and sinks.
 *
 *   observer calls (trainer) -> queue -> run_state -> routes, sinks   (loop)
 *   POST (loop) -> queue -> train_control.next (trainer)
 *
 * With control.socket = "none" the thread runs for the sinks alone. */
#pragma once

#include "daemon/job/job.h"
#include "train/job/control.h"

struct control;

/* Rank 0, before anything that takes time: the socket answers from here on
 * (state "starting"). ZD_ERR_CREATE as http_create. `job` must outlive it. */
enum zd_status control_create(
        const struct job *job, struct control **control_out);
/* What happens goes to `next` (the report on the screen) too; it must outlive
 * the run. NULL control: only to that. */
struct train_observer control_observer(
        struct control *control, const struct train_observer *next);
/* The end: `status` is the run's. Writes the last of every sink, tells who
 * waits, removes the socket. */
void control_destroy(struct control *control, enum zd_status status);
