/* file_writer.h - a file written by its own thread ("zerod-rows"), so that no
 * other thread waits for the disk.
 *
 *   any thread                        the writer
 *   file_writer_add -> | text |   ->  takes all that wait, writes them, and
 *                                     gives back what the disk did not take
 *   file_writer_sync: all that was added is on the disk, or why not
 *
 * FILE_ROWS, FILE_NEW: texts follow each other. Text that cannot be written
 * (the disk is full, or hangs) waits in memory, at most FILE_WRITER_ROOM bytes.
 * It is retried with the next text and by a sync, before later text. A text
 * without room is refused: ZD_ERR_IO. file_writer_close waits for the last try.
 * FILE_WHOLE: each text replaces the file, by tmp + rename, so that a reader
 * sees one whole. While one is written the newest waits and those between are
 * dropped, and so is one that cannot be written. Not durable: a power cut may
 * leave an older one.
 *
 * A failed write is a warning, once until writing works again. */
#pragma once

#include "base/file/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { FILE_WRITER_ROOM = 16 << 20 }; /* bytes */

enum file_mode {
    FILE_ROWS, /* a newline ends each text */
    FILE_NEW,  /* must not be there; once it is deleted, writing fails */
    FILE_WHOLE
};

struct file_writer;

/* `what` the rows of FILE_ROWS are is for messages and stays ("events"); else
 * NULL. Until file_writer_begin texts wait in memory and the file is not
 * touched. */
struct file_writer *file_writer_create(
        const char *path, enum file_mode mode, const char *what);
/* FILE_ROWS keeps the first `kept` bytes of the file (whole rows). */
enum zd_status file_writer_begin(struct file_writer *writer, size_t kept);
/* Both at once. */
enum zd_status file_writer_open(
        const char *path, enum file_mode mode, size_t kept, const char *what,
        struct file_writer **out);
void file_writer_close(struct file_writer *writer);
/* Copies `text`; any thread. ZD_ERR_IO as above. */
enum zd_status file_writer_add(
        struct file_writer *writer, const char *text, size_t bytes);
/* What was added is on disk; any thread, which waits for it. Nothing before
 * file_writer_begin. ZD_ERR_IO: the last try failed. */
enum zd_status file_writer_sync(struct file_writer *writer);

/* Hand the whole lines of a file (which need not be there) to `take`, with what
 * they are as JSON (NULL: it is none), until it says that one does not stay.
 * *kept_out: bytes of those that stay. */
typedef bool file_row_fn(void *ctx, const char *line, const json_t *row);
enum zd_status file_rows(
        const char *path, file_row_fn *take, void *ctx, size_t *kept_out);
