/* copy.h - memcpy, through the caches or past them. */
#pragma once

#include <stddef.h>

typedef void copy_fn(void *to, const void *from, size_t bytes);

/* memcpy; for data that is read soon. */
copy_fn copy_in_cache;
/* For data that is not read soon: bypasses the caches where the processor can,
 * so that a line that is written whole is not read first. memcpy itself does so
 * only for very long copies. */
copy_fn copy_past_cache;
