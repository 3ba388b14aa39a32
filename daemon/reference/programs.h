/* programs.h - the programs that have pages. */
#ifndef ZD_DAEMON_REFERENCE_PROGRAMS_H
#define ZD_DAEMON_REFERENCE_PROGRAMS_H

#include "daemon/cli/program.h"
#include "daemon/reference/man.h"

extern const struct cli_program zerod_program, zerodctl_program;

#endif
