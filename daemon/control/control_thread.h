/* control_thread.h - where and how the control thread runs. */
#ifndef ZD_DAEMON_CONTROL_CONTROL_THREAD_H
#define ZD_DAEMON_CONTROL_CONTROL_THREAD_H

/* Called by the thread itself: from here on it is not bound to the trainer's
 * core where the process was given more, and is woken quickly when ranks fill
 * all cores. */
void control_thread_settle(void);

#endif
