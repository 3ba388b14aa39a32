/* pause.h - how a thread waits for NCCL to have queued a group.
 *
 * A communicator that does not block hands the work to a thread of the
 * library's, which takes some tens of microseconds; the shortest sleep takes
 * the system as long again and more. So it is looked at without a sleep for as
 * long as that may be, and then ever more seldom. Blocking ones would spare
 * that, but a call that hangs could not be left for an abort. */
#ifndef ZD_COMM_NCCL_PAUSE_H
#define ZD_COMM_NCCL_PAUSE_H

/* Seconds to sleep before the next look, after so many of waiting; 0: look
 * again at once. */
static inline double nccl_pause(double waited)
{
    const double at_once = 200e-6, longest = 50e-6;
    if (waited < at_once)
        return 0;
    return waited / 8 < longest ? waited / 8 : longest;
}

#endif
