/* row_file.h - a file of lines that training does not stop for: rows that a
 * full disk did not take wait in memory, and are written before anything that
 * must not be without them (row_file_sync). Internal to train. */
#ifndef ZD_TRAIN_REPORT_ROW_FILE_H
#define ZD_TRAIN_REPORT_ROW_FILE_H

#include "base/status.h"

#include <stddef.h>

struct row_file;

/* Keep the first `kept` bytes of `path` (whole rows) and go on behind them. */
enum zd_status row_file_open(
        const char *path, size_t kept, struct row_file **out);
void row_file_close(struct row_file *file);
/* Add a row, without its newline, and write what waits. That it cannot be
 * written is no failure: then *told_out holds why if nobody was told yet, for
 * the caller to say, and is empty otherwise. ZD_ERR_MEMORY. */
enum zd_status row_file_add(
        struct row_file *file, const char *text, size_t bytes,
        struct zd_error *told_out);
/* Rows so far are on disk. ZD_ERR_IO. */
enum zd_status row_file_sync(struct row_file *file);
/* Its parts: no row waits in memory; and, by any thread beside one that adds
 * more, what did not then is on disk. */
enum zd_status row_file_flush(struct row_file *file);
enum zd_status row_file_harden(const struct row_file *file);

/* The first line of `bytes` of text, without its newline; 0: there is no whole
 * one. */
size_t row_file_line(const char *text, size_t bytes);

#endif
