/* row_file.h - a file of lines that training does not stop for: a thread of the
 * file's own ("zerod-rows") writes them.
 *
 *   any thread                        the writer
 *   row_file_add -> | row | row | ->  takes all that wait, writes them, and
 *                                     gives back what the disk did not take
 *   row_file_sync: all that were added are on the disk, or why not
 *
 * Who adds never waits for the disk. Rows that it does not take (it is full, it
 * stands still) wait in memory, ROW_FILE_ROOM of them at most; they are tried
 * again with the next row and by a sync, and written before anything that must
 * not be without them. A row that finds no room is refused: ZD_ERR_IO.
 * row_file_close waits for those that wait; what the disk still refuses then is
 * told, and lost. Internal to train. */
#ifndef ZD_TRAIN_REPORT_ROW_FILE_H
#define ZD_TRAIN_REPORT_ROW_FILE_H

#include "base/status.h"

#include <stddef.h>

enum { ROW_FILE_ROOM = 16 << 20 }; /* bytes */

struct row_file;

/* Keep the first `kept` bytes of `path` (whole rows) and go on after them.
 * `what` the rows are is for messages and stays: "events". */
enum zd_status row_file_open(
        const char *path, size_t kept, const char *what, struct row_file **out);
void row_file_close(struct row_file *file);
/* Add a row, without its newline; any thread. That it cannot be written is a
 * warning, once, and no failure. ZD_ERR_MEMORY, or ZD_ERR_IO as above. */
enum zd_status row_file_add(
        struct row_file *file, const char *text, size_t bytes);
/* Rows so far are on disk; any thread, which waits for it. ZD_ERR_IO. */
enum zd_status row_file_sync(struct row_file *file);

/* The first line of `bytes` of text, without its newline; 0: there is no whole
 * one. */
size_t row_file_line(const char *text, size_t bytes);

#endif
