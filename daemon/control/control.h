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
/* An observer that also forwards to `next` (the report on the screen), which
 * must outlive the run. NULL control: forwards only. */
struct train_observer control_observer(
        struct control *control, const struct train_observer *next);
/* Ends the control thread; `status`: of the run. Writes every sink a last time,
 * answers waiting clients, removes the socket. */
void control_destroy(struct control *control, enum zd_status status);
