/* foreign_keys.h - what keys of other trainers are called here. */
#ifndef ZD_DAEMON_JOB_FOREIGN_KEYS_H
#define ZD_DAEMON_JOB_FOREIGN_KEYS_H

#include <stdbool.h>
#include <stddef.h>

/* A hint for a key of `section`, or for a section, that zerod does not know:
 * "did you mean `dtype` in [train]?". false: there is none. */
bool foreign_key_hint(
        const char *section, const char *name, char *hint, size_t bytes);
bool foreign_section_hint(const char *name, char *hint, size_t bytes);

#endif
