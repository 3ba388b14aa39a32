/* safetensors_dtype.h - the format's element types; for the reader and the
 * writer of safetensors.h only. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* Place of a type in the reference's order (files hold higher ones first); -1:
 * no such type. */
int st_dtype_rank(const char *dtype);

/* Elements and bytes of a tensor, checked against overflow. */
enum zd_status st_dtype_extent(
        const char *path, const char *name, const char *dtype, int dims,
        const int64_t *shape, uint64_t *count_out, uint64_t *bytes_out);
