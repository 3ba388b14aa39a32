/* programs.h - the programs that have pages and completions. */
#ifndef ZD_DAEMON_REFERENCE_PROGRAMS_H
#define ZD_DAEMON_REFERENCE_PROGRAMS_H

#include "daemon/cli/program.h"
#include "daemon/command/completions.h"
#include "daemon/reference/man.h"

extern const struct cli_program zerod_program, zerodctl_program;

/* What stands behind KEY=VALUE, KEY and NAME of zerodctl: settings, keys of the
 * job file, series. Three elements and the last; never freed. */
const struct completion_keys *zerodctl_keys(void);

#endif
