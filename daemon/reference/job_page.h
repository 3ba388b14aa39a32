/* job_page.h - the tables of docs/job.md. What a person wrote around them
 * stays:
 *
 *   <!-- keys: .. -->          everything up to the next line
 *   <!-- end of keys -->       is replaced; likewise `missing` */
#ifndef ZD_DAEMON_REFERENCE_JOB_PAGE_H
#define ZD_DAEMON_REFERENCE_JOB_PAGE_H

#include "base/status.h"

/* The page at `path` with its tables as the schema has them; the caller frees
 * *text_out. ZD_ERR_NO_INPUT, or ZD_ERR_DATA when a marker is missing. */
enum zd_status job_page_make(const char *path, char **text_out);

#endif
