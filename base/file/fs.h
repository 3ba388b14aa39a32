/* fs.h - files, the careful way: regular files only (a directory, FIFO or
 * device is an error at once, never a hang), EINTR retried, close checked,
 * durable writes that replace by rename. Errors name the path. */
#pragma once

#include "base/status.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Open a regular file for reading. ZD_ERR_NO_INPUT when it does not exist,
 * ZD_ERR_DENIED when it may not be read, ZD_ERR_DATA when it is no regular
 * file. `size_out` may be NULL. */
enum zd_status fs_open_read(const char *path, int *fd_out, uint64_t *size_out);
/* A regular file to read by lines; NULL, and no error, when it cannot be: of
 * files that help where they are there. */
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
/* `bytes` more of a large file were written: after every 32 MiB they go to the
 * disk, so that the fsync at the end is a short one (base/progress.h), and
 * leave the page cache: no one reads them soon, and memory that is taken anew
 * for every page costs more than the write. *behind: what has not; begins with
 * 0. */
enum { FS_BEHIND_BYTES = 32 << 20 };
void fs_write_behind(int fd, size_t *behind, size_t bytes);
/* The file has that length, and room for it where the file system can say so.
 */
enum zd_status fs_reserve(int fd, const char *path, uint64_t bytes);
/* Flush to the disk, then close, also after an error. */
enum zd_status fs_sync_close(int fd, const char *path);
/* A new, empty file to write to; what had the name is removed and not written
 * to, because it may be a link that someone else made. -1 and errno. */
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
 * cannot be made or is no folder. */
enum zd_status fs_make_dirs(const char *path);
bool fs_is_dir(const char *path);
bool fs_exists(const char *path);
/* The same, a link itself too, where a "no" is acted upon: what cannot be known
 * is ZD_ERR_DENIED or ZD_ERR_IO. */
enum zd_status fs_look(const char *path, bool *is_there_out);
/* `take` gets each name in the folder, until it fails; ZD_ERR_NO_INPUT when
 * there is no such folder. A folder that cannot be read to its end is an error.
 */
enum zd_status fs_each_name(
        const char *path, enum zd_status (*take)(void *ctx, const char *name),
        void *ctx);
/* Remove a folder of ours and everything below it. Links are not followed, also
 * not one that takes a folder's place meanwhile. */
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
