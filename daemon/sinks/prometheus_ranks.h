/* prometheus_ranks.h - the families of prometheus.c that have a sample for each
 * rank. Internal to sinks. */
#ifndef ZD_DAEMON_SINKS_PROMETHEUS_RANKS_H
#define ZD_DAEMON_SINKS_PROMETHEUS_RANKS_H

#include "daemon/sinks/exposition.h"

void prometheus_put_life(struct exposition *to, const struct run_state *state);
void prometheus_put_memories(
        struct exposition *to, const struct run_state *state);
void prometheus_put_transfers(
        struct exposition *to, const struct run_state *state);

#endif
