/* stored.h - a tensor and the file that holds it, and what may be wrong with
 * it.
 */
#pragma once

#include "base/file/safetensors.h"

struct stored {
    const struct st_file *file; /* NULLs: there is none */
    const struct st_tensor *tensor;
};

/* ZD_ERR_DATA, with the file. */
#define stored_fail(stored, code, ...)                                         \
    (ZD_FAIL(ZD_ERR_DATA, code, __VA_ARGS__),                                  \
     zd_fail_where("%s", (stored).file->path))
/* Elements [begin, begin + count) that were read: E0312 unless all are finite.
 */
enum zd_status stored_check_finite(
        struct stored stored, size_t begin, size_t count, const float *values);
/* "[16, 64]" */
enum { SHAPE_TEXT = 160 };
void shape_text(int dims, const int64_t *shape, char out[SHAPE_TEXT]);
