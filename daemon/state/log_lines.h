/* log_lines.h - whole lines of a file that grows: a rank's log, events.jsonl.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The lines in the last `most` bytes: the last `tail` of them (below 0: all).
 * *end_out: where the last one ends in the file. malloc'd, with a NUL after
 * them. */
char *log_lines_last(
        int fd, int64_t most, int64_t tail, int64_t *end_out,
        size_t *bytes_out);
/* Lines from *at on, which moves past them; one that is longer than `room`
 * comes in pieces. Returns the bytes; 0: there is no whole line yet. */
size_t log_lines_next(int fd, int64_t *at, char *out, size_t room);
