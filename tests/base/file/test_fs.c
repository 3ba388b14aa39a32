#include "base/file/fs.h"
#include "tests/support/scratch_suite.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(fs, IN_SCRATCH, .timeout = 100);

static enum zd_status try_open(const char *path)
{
    int fd = -1;
    zd_error_clear();
    enum zd_status status = fs_open_read(path, &fd, NULL);
    if (status == ZD_OK)
        close(fd);
    else
        cr_expect_not_null(
                strstr(zd_error_get()->what, path), "names the path");
    return status;
}

Test(fs, only_regular_files_are_opened)
{
    cr_expect_eq(try_open(scratch_path(&scratch, "missing")), ZD_ERR_NO_INPUT);
    cr_expect_eq(try_open(scratch.dir), ZD_ERR_DATA);
    cr_assert_eq(mkfifo(scratch_path(&scratch, "fifo"), 0600), 0);
    cr_expect_eq(try_open(scratch.path), ZD_ERR_DATA);
    cr_expect_eq(try_open("/dev/zero"), ZD_ERR_DATA);
    scratch_file(&scratch, "file", "x", 1);
    MUST(try_open(scratch.path));
    cr_expect_eq(
            try_open(scratch_path(&scratch, "file/below")), ZD_ERR_NO_INPUT);
    cr_assert_eq(symlink("file", scratch_path(&scratch, "link")), 0);
    MUST(try_open(scratch.path));
    cr_assert_eq(symlink("loop", scratch_path(&scratch, "loop")), 0);
    cr_expect_eq(try_open(scratch.path), ZD_ERR_IO);
}

Test(fs, reads_whole_files_up_to_a_limit)
{
    char *data = NULL;
    size_t bytes = 0;
    scratch_file(&scratch, "file", "ab\0cd", 5);
    MUST(fs_read_file(scratch.path, 5, &data, &bytes));
    cr_expect_eq(bytes, 5);
    cr_expect_arr_eq(data, "ab\0cd", 6, "with a NUL behind it");
    free(data);
    cr_expect_eq(fs_read_file(scratch.path, 4, &data, &bytes), ZD_ERR_DATA);
    zd_error_clear();
    scratch_file(&scratch, "empty", "", 0);
    MUST(fs_read_file(scratch.path, 0, &data, &bytes));
    cr_expect_eq(bytes, 0);
    free(data);
}

Test(fs, pread_gives_all_or_an_error)
{
    char data[4] = "";
    int fd;
    uint64_t size;
    scratch_file(&scratch, "file", "abcdef", 6);
    MUST(fs_open_read(scratch.path, &fd, &size));
    cr_expect_eq(size, 6);
    MUST(fs_pread(fd, scratch.path, data, 4, 2));
    cr_expect_arr_eq(data, "cdef", 4);
    cr_expect_eq(fs_pread(fd, scratch.path, data, 4, 3), ZD_ERR_DATA);
    close(fd);
}

Test(fs, write_replaces_and_leaves_no_temporary_file)
{
    char *data;
    scratch_file(&scratch, "file", "old and longer", 14);
    MUST(fs_write_file(scratch.path, "new", 3));
    MUST(fs_read_file(scratch.path, 100, &data, NULL));
    cr_expect_str_eq(data, "new");
    free(data);
    cr_expect_not(fs_exists(scratch_path(&scratch, "file.tmp")));
}

Test(fs, write_that_fails_keeps_the_old_file)
{
    cr_expect_eq(
            fs_write_file(scratch_path(&scratch, "no/such/file"), "x", 1),
            ZD_ERR_CREATE);
    zd_error_clear();
    /* a folder cannot be replaced by a file */
    MUST(fs_make_dirs(scratch_path(&scratch, "folder")));
    cr_expect_eq(fs_write_file(scratch.path, "x", 1), ZD_ERR_IO);
    cr_expect(fs_is_dir(scratch.path));
    cr_expect_not(fs_exists(scratch_path(&scratch, "folder.tmp")));
}

Test(fs, a_full_disk_is_reported)
{
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0)
        cr_skip("no /dev/full");
    cr_expect_eq(fs_pwrite(fd, "/dev/full", "x", 1, 0), ZD_ERR_IO);
    close(fd);
}

Test(fs, makes_and_removes_folders)
{
    MUST(fs_make_dirs(scratch_path(&scratch, "a/b//c/")));
    cr_expect_eq(fs_make_dirs(scratch.path), ZD_OK, "again is no error");
    cr_expect(fs_is_dir(scratch_path(&scratch, "a/b/c")));
    scratch_file(&scratch, "a/b/file", "x", 1);
    cr_expect_eq(
            fs_make_dirs(scratch_path(&scratch, "a/b/file/d")), ZD_ERR_CREATE);
    zd_error_clear();
    cr_expect_eq(
            fs_make_dirs(scratch_path(&scratch, "a/b/file")), ZD_ERR_CREATE);
    zd_error_clear();
    /* what a link points to stays */
    scratch_file(&scratch, "kept", "x", 1);
    cr_assert_eq(symlink("../kept", scratch_path(&scratch, "a/link")), 0);
    cr_assert_eq(symlink("..", scratch_path(&scratch, "a/up")), 0);
    MUST(fs_remove_tree(scratch_path(&scratch, "a")));
    cr_expect_not(fs_exists(scratch.path));
    cr_expect(fs_exists(scratch_path(&scratch, "kept")));
    cr_expect_eq(
            fs_remove_tree(scratch_path(&scratch, "a")), ZD_OK,
            "what is not there is removed already");
}

/* In a folder of a group its members can make what they like. */
Test(fs, new_files_are_written_through_no_link)
{
    char target[PATH_MAX];
    scratch_file(&scratch, "kept", "x", 1);
    ZD_PRINT(target, "%s", scratch.path);
    for (int i = 0; i < 2; i++) {
        struct stat info;
        scratch_path(&scratch, "file.tmp");
        cr_assert_eq(
                (i ? link : symlink)(target, scratch.path), 0, "way %d", i);
        MUST(fs_write_file(scratch_path(&scratch, "file"), "new", 3));
        cr_assert_eq(lstat(scratch.path, &info), 0);
        cr_expect(S_ISREG(info.st_mode) && info.st_size == 3);
        cr_assert_eq(stat(target, &info), 0);
        cr_expect_eq(info.st_size, 1, "way %d", i);
    }
}

static char swapped[PATH_MAX], swapped_with[PATH_MAX]; /* "": not now */

/* In the place of libc's: before the first removal a link takes the place of
 * the folder that is being emptied. */
int unlinkat(int folder, const char *name, int flags)
{
    if (swapped[0])
        renameat2(AT_FDCWD, swapped, AT_FDCWD, swapped_with, RENAME_EXCHANGE);
    swapped[0] = '\0';
    return (int)syscall(SYS_unlinkat, folder, name, flags);
}

Test(fs, a_link_in_the_place_of_a_folder_leads_nothing_out)
{
    MUST(fs_make_dirs(scratch_path(&scratch, "other")));
    MUST(fs_make_dirs(scratch_path(&scratch, "tree/sub")));
    scratch_file(&scratch, "other/a", "x", 1);
    scratch_file(&scratch, "other/b", "x", 1);
    scratch_file(&scratch, "tree/sub/a", "x", 1);
    scratch_file(&scratch, "tree/sub/b", "x", 1);
    snprintf(swapped_with, PATH_MAX, "%s", scratch_path(&scratch, "link"));
    cr_assert_eq(symlink(scratch_path(&scratch, "other"), swapped_with), 0);
    snprintf(swapped, PATH_MAX, "%s", scratch_path(&scratch, "tree/sub"));
    fs_remove_tree(scratch_path(&scratch, "tree")); /* the link is no folder */
    zd_error_clear();
    cr_expect_not(swapped[0], "they were swapped");
    cr_expect(fs_exists(scratch_path(&scratch, "other/a")));
    cr_expect(fs_exists(scratch_path(&scratch, "other/b")));
}

Test(fs, joins_paths)
{
    char out[16];
    fs_join(out, sizeof out, "a", "b");
    cr_expect_str_eq(out, "a/b");
    fs_join(out, sizeof out, "a/", "b");
    cr_expect_str_eq(out, "a/b");
    fs_join(out, sizeof out, "/", "b");
    cr_expect_str_eq(out, "/b");
}

Test(fs, knows_free_space)
{
    uint64_t bytes = 0;
    MUST(fs_free_bytes(scratch.dir, &bytes));
    cr_expect_gt(bytes, 0);
    cr_expect_eq(
            fs_free_bytes(scratch_path(&scratch, "none"), &bytes),
            ZD_ERR_NO_INPUT);
}
