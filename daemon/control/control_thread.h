/* control_thread.h - where and how the control thread runs. */
#ifndef ZD_DAEMON_CONTROL_CONTROL_THREAD_H
#define ZD_DAEMON_CONTROL_CONTROL_THREAD_H

#include "base/status.h"

#include <pthread.h>

/* `body` in a thread named "zerod-control" that takes no signals, is not bound
 * to the trainer's core where the process was given more, and is woken quickly
 * when ranks fill all cores. ZD_ERR_MEMORY when the system refuses. */
enum zd_status control_thread_start(
        void *(*body)(void *), void *arg, pthread_t *thread_out);

#endif
