/* require.h - calls that must succeed on the way to what is tested, in files
 * that know nothing of Criterion. */
#pragma once

#include "base/status.h"

#include <stdlib.h>

static inline void require(enum zd_status status)
{
    if (status == ZD_OK)
        return;
    zd_error_print(stderr, zd_error_get());
    abort();
}
