/* job_page.h - the tables of docs/job.md: keys, and those that are missing. */
#ifndef ZD_DAEMON_REFERENCE_JOB_PAGE_H
#define ZD_DAEMON_REFERENCE_JOB_PAGE_H

#include "base/status.h"

/* The page at `path` with its tables as the schema has them; as page_make. */
enum zd_status job_page_make(const char *path, char **text_out);

#endif
