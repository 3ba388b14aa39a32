#include "train/report/file_writer.h"

#include "base/log.h"
#include "base/must.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct scratch scratch;
static int warnings;

static void on_log(void *ctx, enum zd_log_level level, const char *message)
{
    warnings += level >= ZD_LOG_WARNING && strstr(message, "cannot write") &&
                strstr(message, "training goes on");
}

static void setup(void)
{
    scratch_init(&scratch);
    zd_log_set_hook(on_log, NULL);
}

static void teardown(void)
{
    zd_log_set_hook(NULL, NULL);
    scratch_fini(&scratch);
}

TestSuite(file_writer, .init = setup, .fini = teardown);

static struct file_writer *create(const char *name, enum file_mode mode)
{
    struct file_writer *writer;
    cr_assert_eq(
            file_writer_open(
                    scratch_path(&scratch, name), mode, 0, NULL, &writer),
            ZD_OK);
    return writer;
}

static void add(struct file_writer *writer, const char *text)
{
    cr_assert_eq(file_writer_add(writer, text, strlen(text)), ZD_OK);
}

/* .. and wait until it was tried. */
static void try(struct file_writer *writer, const char *text)
{
    add(writer, text);
    file_writer_sync(writer);
}

static void expect_file(const char *name, const char *want)
{
    ZD_FREED char *text = NULL;
    cr_assert_eq(
            fs_read_file(scratch_path(&scratch, name), 1 << 20, &text, NULL),
            ZD_OK);
    cr_expect_str_eq(text, want);
}

/* Every file takes at most this many bytes, as if the disk were full. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}

Test(file_writer, the_newest_text_replaces_the_file_and_a_reader_keeps_the_old)
{
    struct stat before, after;
    char text[16] = "";
    struct file_writer *writer = create("file", FILE_WHOLE);
    try(writer, "first");
    stat(scratch_path(&scratch, "file"), &before);
    FILE *reader = fopen(scratch.path, "r");
    for (int i = 0; i < 1000; i++)
        add(writer, "between");
    add(writer, "last");
    file_writer_close(writer);
    expect_file("file", "last");
    stat(scratch.path, &after);
    cr_expect_neq(before.st_ino, after.st_ino);
    cr_expect_str_eq(fgets(text, sizeof text, reader), "first");
    fclose(reader);
    cr_expect_not(fs_exists(scratch_path(&scratch, "file.tmp")));
}

Test(file_writer, a_sync_without_a_new_text_leaves_the_file)
{
    struct file_writer *writer = create("file", FILE_WHOLE);
    try(writer, "text");
    file_writer_sync(writer);
    file_writer_sync(writer);
    file_writer_close(writer);
    expect_file("file", "text");
}

Test(file_writer, a_link_in_place_of_the_temporary_file_is_not_followed)
{
    struct file_writer *writer = create("file", FILE_WHOLE);
    char target[PATH_MAX];
    strcpy(target, scratch_file(&scratch, "target", "mine", 4));
    cr_assert_eq(symlink(target, scratch_path(&scratch, "file.tmp")), 0);
    add(writer, "text");
    file_writer_close(writer);
    expect_file("target", "mine");
    expect_file("file", "text");
}

Test(file_writer, a_deleted_folder_is_one_warning_and_is_used_when_it_is_back)
{
    struct file_writer *writer = create("gone/file", FILE_WHOLE);
    for (int i = 0; i < 5; i++)
        try(writer, "text");
    cr_expect_eq(warnings, 1);
    cr_assert_eq(fs_make_dirs(scratch_path(&scratch, "gone")), ZD_OK);
    add(writer, "late");
    file_writer_close(writer);
    expect_file("gone/file", "late");
    cr_expect_eq(warnings, 1);
}

Test(file_writer, a_full_disk_leaves_the_old_file_whole)
{
    struct file_writer *writer = create("file", FILE_WHOLE);
    try(writer, "old");
    limit_files(4);
    for (int i = 0; i < 3; i++)
        try(writer, "much longer");
    file_writer_close(writer);
    limit_files(RLIM_INFINITY);
    expect_file("file", "old");
    cr_expect_not(fs_exists(scratch_path(&scratch, "file.tmp")));
    cr_expect_eq(warnings, 1);
}

Test(file_writer, a_torn_write_is_taken_back_and_tried_again_in_order)
{
    struct file_writer *writer = create("file", FILE_NEW);
    try(writer, "abc");
    limit_files(5);
    try(writer, "defg");
    expect_file("file", "abc");
    limit_files(RLIM_INFINITY);
    add(writer, "hi");
    add(writer, "j");
    file_writer_close(writer);
    expect_file("file", "abcdefghij");
}

Test(file_writer, a_new_file_that_is_deleted_is_one_warning)
{
    struct file_writer *writer = create("file", FILE_NEW);
    try(writer, "abc");
    unlink(scratch_path(&scratch, "file"));
    for (int i = 0; i < 40; i++)
        try(writer, "more");
    file_writer_close(writer);
    cr_expect_eq(warnings, 1);
    cr_expect_not(fs_exists(scratch_path(&scratch, "file")));
}

Test(file_writer, a_new_file_does_not_touch_one_that_is_there)
{
    struct file_writer *writer;
    scratch_file(&scratch, "file", "mine", 4);
    cr_expect_eq(
            file_writer_open(scratch.path, FILE_NEW, 0, NULL, &writer),
            ZD_ERR_CREATE);
    zd_error_clear();
    expect_file("file", "mine");
}
