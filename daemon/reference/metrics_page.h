/* metrics_page.h - the tables of docs/metrics.md, from the table of metrics. */
#ifndef ZD_DAEMON_REFERENCE_METRICS_PAGE_H
#define ZD_DAEMON_REFERENCE_METRICS_PAGE_H

#include "base/status.h"

/* The page at `path` with its tables as they are; as page_make. */
enum zd_status metrics_page_make(const char *path, char **text_out);

#endif
