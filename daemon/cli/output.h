/* output.h - stdout, where results go. A reader that went away and a full disk
 * end the program with 74, not with a signal and not with a 0. */
#pragma once

#include "base/file/json.h"
#include "base/must.h"

/* Call first: ignores SIGPIPE and gives descriptors 0, 1 and 2 that were closed
 * something harmless, so that no file of ours is opened there. */
void output_init(void);
void output_json(const json_t *json);

/* What holds text of others (names, values of a file) is written to
 * output_begin's stream and shown by output_end: on a terminal what is not
 * printable is escaped (base/printable.h). */
struct output {
    FILE *stream; /* of memory */
    char *text;
    size_t bytes;
};
FILE *output_begin(struct output *output);
void output_end(struct output *output);
/* FILE *stream, shown at the end of its scope. */
#define OUTPUT(stream)                                                         \
    ZD_SCOPED(output_end) struct output stream##_output;                       \
    FILE *stream = output_begin(&stream##_output)

/* Flush stdout. Returns `code`, or 74 when a result could not be written; says
 * so unless the reader closed the pipe. */
int output_finish(int code);
/* A terminal whose TERM is neither "dumb" nor missing: a line may be drawn
 * over. */
bool output_is_terminal(int fd);
/* The same, and NO_COLOR is not set: escape codes may be sent. */
bool output_has_color(int fd);
/* Columns of the terminal, 80 when it does not say. */
int output_columns(int fd);
