#include "model/quantized/stored.h"

#include <math.h>
#include <stdio.h>

enum zd_status stored_check_finite(
        struct stored stored, size_t begin, size_t count, const float *values)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return stored_fail(
                    stored, "E0312", "tensor `%s` is %s at element %zu",
                    stored.tensor->name,
                    isnan(values[i]) ? "not a number" : "infinite", begin + i);
    return ZD_OK;
}

void shape_text(int dims, const int64_t *shape, char out[SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(out, SHAPE_TEXT, "[");
    for (int d = 0; d < dims && used < SHAPE_TEXT; d++)
        used += (size_t)snprintf(
                out + used, SHAPE_TEXT - used, "%s%lld", d ? ", " : "",
                (long long)shape[d]);
    if (used < SHAPE_TEXT)
        snprintf(out + used, SHAPE_TEXT - used, "]");
}
