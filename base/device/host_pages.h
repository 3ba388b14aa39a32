/* host_pages.h - memory of the process, by the page: exactly as long as asked
 * for, clear, and untouched pages cost nothing. munmap gives it back. */
#pragma once

#include "base/status.h"

#include <stddef.h>

/* `kind` ("pinned") names the memory in an error. ZD_ERR_MEMORY. */
enum zd_status host_pages_take(size_t bytes, const char *kind, void **host_out);
