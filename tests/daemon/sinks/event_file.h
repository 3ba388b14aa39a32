/* event_file.h - a reader of TensorBoard event files, written from the format
 * alone: it shares nothing with the writer. For tests only. */
#ifndef ZD_TESTS_EVENT_FILE_H
#define ZD_TESTS_EVENT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENT_VALUES_MAX = 32 };

struct event_value {
    char tag[80];
    float number;    /* simple_value */
    char text[4096]; /* string_val of a tensor */
    char plugin[16];
};

struct event { /* as it was read */
    double wall_time;
    int64_t step;
    char version[32];
    int session; /* 0: none; 1: START */
    struct event_value values[EVENT_VALUES_MAX];
    int value_count;
};

/* The record at data[*at]; *at moves past it. False at the end. Lengths and
 * checksums that are wrong end the test. */
bool event_read(
        const char *data, size_t bytes, size_t *at, struct event *event_out);
const struct event_value *event_find(
        const struct event *event, const char *tag); /* NULL: none */
/* crc-32c, a bit at a time. */
uint32_t event_crc(const void *data, size_t bytes);

#endif
