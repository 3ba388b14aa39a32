/* copy.h - memcpy of what no one reads soon. */
#pragma once

#include <stddef.h>

typedef void copy_fn(void *to, const void *from, size_t bytes);

/* memcpy, of what is read soon. */
copy_fn copy_in_cache;
/* memcpy, past the caches where the processor can: a line that is written whole
 * is not read first. memcpy itself does so for very long copies alone. */
copy_fn copy_past_cache;
