/* copy.h - memcpy of what no one reads soon. */
#pragma once

#include <stddef.h>

/* memcpy, past the caches where the processor can: a line that is written whole
 * is not read first. memcpy itself does so for very long copies alone. */
void copy_past_cache(void *to, const void *from, size_t bytes);
