/* embedded.h - the job files of deploy/recipes, and the tables of other trainers'
 * keys (formats). */
#ifndef ZD_DAEMON_INIT_EMBEDDED_H
#define ZD_DAEMON_INIT_EMBEDDED_H

#include "base/embedded.h"

extern const char embedded_recipes[], embedded_formats[]; /* embedded.S */

#endif
