/* fit_page.h - the tables of docs/measured/fit.md: what `zerod plan --fit`
 * finds for the models that it knows. */
#ifndef ZD_DAEMON_REFERENCE_FIT_PAGE_H
#define ZD_DAEMON_REFERENCE_FIT_PAGE_H

#include "base/status.h"

/* The page at `path` with its tables as they are found; as page_make. */
enum zd_status fit_page_make(const char *path, char **text_out);

#endif
