/* fs.h - files, the careful way: regular files only (a directory, FIFO or
 * device is an error at once, never a hang), EINTR retried, close checked,
 * durable writes that replace by rename. Errors name the path. */
#pragma once

#include "base/status.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Open a regular file for reading. ZD_ERR_NO_INPUT when it does not exist,
 * ZD_ERR_DENIED when it may not be read, ZD_ERR_DATA when it is not a regular
 * file. `size_out` may be NULL. */
enum zd_status fs_open_read(const char *path, int *fd_out, uint64_t *size_out);
/* A regular file to read by lines, for optional files: NULL without an error
 * when it cannot be opened. */
FILE *fs_open_lines(const char *path);
/* Whole file into heap memory with a NUL after it; ZD_ERR_DATA above `max`.
 * The caller frees *data_out. */
enum zd_status fs_read_file(
        const char *path, uint64_t max, char **data_out, size_t *bytes_out);
/* Exactly `bytes` at `offset`, or an error (a short file is ZD_ERR_DATA). */
enum zd_status fs_pread(
        int fd, const char *path, void *data, size_t bytes, uint64_t offset);
enum zd_status fs_pwrite(
        int fd, const char *path, const void *data, size_t bytes,
        uint64_t offset);
/* Call after writing `bytes` more of a large file. Every 32 MiB it flushes them
 * to the disk, so that the fsync at the end is short (base/progress.h), and
 * drops them from the page cache, since new cache pages cost more than the
 * write. *behind: bytes not flushed yet; starts at 0. */
enum { FS_BEHIND_BYTES = 32 << 20 };
void fs_write_behind(int fd, size_t *behind, size_t bytes);
/* Sets the file's length, and reserves the space where the file system can. */
enum zd_status fs_reserve(int fd, const char *path, uint64_t bytes);
/* Flush to the disk, then close, also after an error. */
enum zd_status fs_sync_close(int fd, const char *path);
/* A new, empty file to write to. A file of that name is removed rather than
 * written to: it may be a link that someone else made. Fails with -1 and
 * errno. */
int fs_create(const char *path, mode_t mode);
/* Status of an errno: ZD_ERR_DENIED for a missing permission, else
 * ZD_ERR_CREATE. */
enum zd_status fs_create_status(int error);
/* Write a temporary file, fsync it, rename it over the old one, fsync the
 * folder. */
enum zd_status fs_write_file(const char *path, const void *data, size_t bytes);
enum zd_status fs_sync_dir(const char *path);
/* Flush the folder of `path`, so that the file's name is on the disk. */
enum zd_status fs_sync_name(const char *path);
/* mkdir -p, names on the disk; ZD_ERR_CREATE or ZD_ERR_DENIED when a part
 * cannot be made or is not a folder. */
enum zd_status fs_make_dirs(const char *path);
bool fs_is_dir(const char *path);
bool fs_exists(const char *path);
/* The same (a link counts itself), for callers that act on a "no": if it cannot
 * be determined, ZD_ERR_DENIED or ZD_ERR_IO. */
enum zd_status fs_look(const char *path, bool *is_there_out);
/* Calls `take` with each name in the folder until it fails; ZD_ERR_NO_INPUT
 * when there is no such folder. A folder that cannot be read to its end is an
 * error. */
enum zd_status fs_each_name(
        const char *path, enum zd_status (*take)(void *ctx, const char *name),
        void *ctx);
/* Remove a folder and everything below it. Links are not followed, not even one
 * that replaces a folder meanwhile. */
enum zd_status fs_remove_tree(const char *path);
/* Free bytes for an ordinary user on the file system that holds `path`. */
enum zd_status fs_free_bytes(const char *path, uint64_t *bytes_out);
/* Join with one '/'; asserts that it fits PATH_MAX. */
void fs_join(char *out, size_t out_bytes, const char *dir, const char *name);
/* The same as a value: fs_exists(fs_in(dir, "config.json").text). */
struct fs_path {
    char text[PATH_MAX];
};
struct fs_path fs_in(const char *dir, const char *name);
