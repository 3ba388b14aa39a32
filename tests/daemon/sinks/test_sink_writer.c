#include "daemon/sinks/sink.h"
#include "tests/daemon/sinks/state_case.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct state_case c;
static uv_loop_t loop;

static void setup(void)
{
    state_case_init(&c);
    cr_assert_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0);
    state_case_fini(&c);
}

TestSuite(sink_writer, .init = setup, .fini = teardown);

static void hand(struct sink_writer *writer, const char *text)
{
    sink_write_file(writer, strdup(text), strlen(text));
}

static void expect_file(const char *name, const char *want)
{
    char *text = state_case_read(&c, name, NULL);
    cr_expect(
            text && strcmp(text, want) == 0, "%s: %s", name,
            text ? text : "none");
    free(text);
}

static struct sink_writer *create(const char *name, bool appends)
{
    struct sink_writer *writer;
    scratch_path(&c.scratch, name);
    cr_assert_eq(
            (appends ? sink_appender_create
                     : sink_writer_create)(&loop, c.scratch.path, &writer),
            ZD_OK);
    return writer;
}

/* Every file takes at most this many bytes, as if the disk were full. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}

Test(sink_writer, the_newest_text_wins_and_the_ones_between_are_not_written)
{
    struct sink_writer *writer = create("file", false);
    hand(writer, "first");
    for (int i = 0; i < 1000; i++)
        hand(writer, "between");
    hand(writer, "last");
    uv_run(&loop, UV_RUN_DEFAULT);
    expect_file("file", "last");
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "file.tmp")));
    sink_writer_destroy(writer);
}

Test(sink_writer, the_end_writes_what_waits_without_the_loop)
{
    struct sink_writer *writer = create("file", false);
    hand(writer, "first");
    hand(writer, "last");
    sink_writer_destroy(writer);
    expect_file("file", "last");
}

/* As where a machine has no memory or no number for one more: libuv takes the
 * size of stacks from this limit, and no address space has room for this one. */
Test(sink_writer, where_no_thread_can_be_made_the_loop_writes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = (rlim_t)1 << 47;
    cr_assert_eq(setrlimit(RLIMIT_STACK, &limit), 0);
    struct sink_writer *writer = create("file", false);
    hand(writer, "text");
    expect_file("file", "text");
    sink_writer_destroy(writer);
}

Test(sink_writer, a_reader_holds_a_whole_file_while_another_replaces_it)
{
    struct stat before, after;
    struct sink_writer *writer = create("file", false);
    hand(writer, "first");
    uv_run(&loop, UV_RUN_DEFAULT);
    stat(scratch_path(&c.scratch, "file"), &before);
    FILE *reader = fopen(c.scratch.path, "r");
    hand(writer, "second");
    uv_run(&loop, UV_RUN_DEFAULT);
    stat(c.scratch.path, &after);
    char text[16] = "";
    cr_expect_str_eq(fgets(text, sizeof text, reader), "first");
    fclose(reader);
    cr_expect_neq(before.st_ino, after.st_ino);
    sink_writer_destroy(writer);
}

Test(sink_writer, a_link_in_the_place_of_the_file_beside_is_not_followed)
{
    struct sink_writer *writer = create("file", false);
    char target[PATH_MAX];
    strcpy(target, scratch_file(&c.scratch, "target", "mine", 4));
    cr_assert_eq(symlink(target, scratch_path(&c.scratch, "file.tmp")), 0);
    hand(writer, "text");
    sink_writer_destroy(writer);
    expect_file("target", "mine");
    expect_file("file", "text");
}

Test(sink_writer, a_vanished_folder_is_one_warning_and_one_that_is_back_is_used)
{
    struct sink_writer *writer = create("gone/file", false);
    for (int i = 0; i < 5; i++) {
        hand(writer, "text");
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    cr_expect_eq(state_case_log_count(&c, "cannot write"), 1);
    cr_expect_eq(state_case_log_count(&c, "training goes on"), 1);
    cr_assert_eq(fs_make_dirs(scratch_path(&c.scratch, "gone")), ZD_OK);
    hand(writer, "late");
    uv_run(&loop, UV_RUN_DEFAULT);
    expect_file("gone/file", "late");
    sink_writer_destroy(writer);
}

/* The log is a file too, and cannot grow here: warnings are counted above. */
Test(sink_writer, a_full_disk_leaves_the_old_file_whole)
{
    struct sink_writer *writer = create("file", false);
    hand(writer, "old");
    uv_run(&loop, UV_RUN_DEFAULT);
    limit_files(4);
    for (int i = 0; i < 3; i++) {
        hand(writer, "much longer");
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    sink_writer_destroy(writer);
    limit_files(RLIM_INFINITY);
    expect_file("file", "old");
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "file.tmp")));
}

Test(sink_writer, an_appender_keeps_all_and_in_order)
{
    struct sink_writer *writer = create("file", true);
    hand(writer, "a");
    hand(writer, "b");
    hand(writer, "c");
    uv_run(&loop, UV_RUN_DEFAULT);
    hand(writer, "d");
    hand(writer, "e");
    sink_writer_destroy(writer);
    expect_file("file", "abcde");
}

Test(sink_writer, an_appender_takes_a_torn_write_back_and_tries_again)
{
    struct sink_writer *writer = create("file", true);
    hand(writer, "abc");
    uv_run(&loop, UV_RUN_DEFAULT);
    limit_files(5);
    hand(writer, "defg");
    uv_run(&loop, UV_RUN_DEFAULT);
    expect_file("file", "abc");
    limit_files(RLIM_INFINITY);
    hand(writer, "hij");
    uv_run(&loop, UV_RUN_DEFAULT);
    expect_file("file", "abcdefghij");
    sink_writer_destroy(writer);
}

Test(sink_writer, an_appender_whose_file_vanished_says_so_once)
{
    struct sink_writer *writer = create("file", true);
    hand(writer, "abc");
    uv_run(&loop, UV_RUN_DEFAULT);
    unlink(scratch_path(&c.scratch, "file"));
    for (int i = 0; i < 40; i++) {
        sink_write_file(writer, calloc(1, 65536), 65536);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    cr_expect_eq(state_case_log_count(&c, "cannot write"), 1);
    sink_writer_destroy(writer);
    cr_expect_not(fs_exists(scratch_path(&c.scratch, "file")));
}

Test(sink_writer, an_appender_leaves_a_file_that_is_there_alone)
{
    struct sink_writer *writer = create("file", true);
    scratch_file(&c.scratch, "file", "mine", 4);
    hand(writer, "abc");
    sink_writer_destroy(writer);
    expect_file("file", "mine");
    cr_expect_eq(state_case_log_count(&c, "cannot write"), 1);
}
