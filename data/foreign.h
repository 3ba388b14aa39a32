/* foreign.h - files that people give as text and that are none: tables,
 * archives, what Git LFS leaves in a file's place. */
#ifndef ZD_DATA_FOREIGN_H
#define ZD_DATA_FOREIGN_H

#include "data/source.h"

/* ZD_ERR_DATA, with how to convert it, when the first bytes of the file are
 * those of such a format, or are not those of `container`. `fd` is open for
 * reading. */
enum zd_status foreign_check(
        int fd, const char *path, enum data_container container);

#endif
