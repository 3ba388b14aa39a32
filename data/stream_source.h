/* stream_source.h - how stream.c reads a container: a struct of functions for
 * each kind. */
#pragma once

#include "data/stream.h"

struct data_stream {
    const struct data_file *file;
    const struct container *container;
    int fd;
    uint64_t at; /* next byte of the file to be read */
    size_t row_most;
    void *state; /* the container's; owned by it */

    /* of an array of records */
    enum { ARRAY_BEFORE, ARRAY_ELEMENT, ARRAY_VALUE, ARRAY_AFTER } phase;
    int depth;
    bool in_string, is_escaped;
    int64_t elements;
};

struct container {
    enum zd_status (*open)(struct data_stream *stream); /* and close: or NULL */
    /* At least one byte, up to `bytes`; 0: the end. */
    enum zd_status (*read)(
            struct data_stream *stream, char *text, size_t bytes,
            size_t *bytes_out);
    void (*close)(struct data_stream *stream);
};

extern const struct container packed_container, parquet_container;
