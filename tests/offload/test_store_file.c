#include "tests/offload/store_case.h"

#include "offload/aio.h"
#include "offload/store_record.h"
#include "tests/support/scratch_suite.h"

#include <criterion/parameterized.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct store_case test;
/* Chunks of 1024 elements: 23 of them, for a ring of 4 or 8. */
static struct store_setup setup = {
        .threads = 1, .chunk_bytes = 4096, .block_bytes = 1 << 20};

static void end(void)
{
    if (test.store)
        case_fini(&test);
}

TestSuite(store_file, .fini = end);

/* --- against a model in memory -------------------------------------------- */

struct trial {
    struct store_setup setup;
    int workers;
};

static struct trial trials[] = {
        {{false, false, 1, 4096, 1 << 20, 8}, 1},
        {{true, false, 3, 4096, 4096, 3}, 3},
        {{true, true, 1, 8192, 8192, 1}, 4},
        {{false, true, 1, 2048, 1 << 20, 2}, 4},
};

ParameterizedTestParameters(store_file, random_lists_see_what_was_written_last)
{
    return cr_make_param_array(
            struct trial, trials, sizeof trials / sizeof *trials);
}

ParameterizedTest(
        struct trial *trial, store_file, random_lists_see_what_was_written_last)
{
    case_init(&test, &trial->setup);
    for (unsigned seed = 1; seed <= 4; seed++)
        cr_expect(case_random_lists(&test, 60, trial->workers, seed) == 0);
}

/* The store's file has no name but those that the process has for it. */
static int open_file(const char *name)
{
    char path[64], target[PATH_MAX];
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int found = -1;
    cr_assert(dir);
    while (found < 0 && (entry = readdir(dir))) {
        ZD_PRINT(path, "/proc/self/fd/%.20s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        if (strstr(target, name))
            found = open(path, O_RDWR);
    }
    closedir(dir);
    cr_assert(found >= 0);
    return found;
}

/* --- what is moved -------------------------------------------------------- */

static struct offload_report moved(void)
{
    struct offload_report report = {0};
    MUST(store_file_finish(test.store));
    store_file_report(test.store, &report);
    return report;
}

static struct store_list all_chunks(unsigned reads, unsigned writes)
{
    return (struct store_list){0, test.chunk_count, reads, writes};
}

/* A buffer whose write took long may keep its chunk through a whole list. Of
 * this one every buffer takes a chunk of the last half as it begins; all_chunks
 * begins with the first half, so it finds none of its chunks in the ring. */
static void take_every_buffer(void)
{
    int half = test.chunk_count / 2;
    cr_assert(record_ring_count(&test.request, test.chunk_count) <= half);
    struct store_list list = {test.chunk_count - half, half, CHUNK_STATES, 0};
    cr_expect(case_go_through(&test, &list, 1, NULL) == 0);
    moved();
}

static size_t pages(size_t wide)
{
    size_t bytes = 0;
    for (int i = 0; i < test.chunk_count; i++)
        bytes += (test.chunks[i].count * wide + 4095) / 4096 * 4096;
    return bytes;
}

Test(store_file, only_the_parts_of_a_list_are_moved)
{
    setup.params = true;
    case_init(&test, &setup);
    const size_t slots = pages(2), masters = pages(4);
    const size_t all = test.file_bytes, states = all - slots;
    const struct {
        unsigned reads, writes;
        size_t read, written;
    } lists[] = {
            {0, CHUNK_SLOT, 0, slots},
            {CHUNK_STATES, CHUNK_STATES, states, states},
            {CHUNK_STATES | CHUNK_SLOT, CHUNK_STATES | CHUNK_SLOT, all, all},
            /* which are no neighbors */
            {CHUNK_MASTER | CHUNK_SLOT, CHUNK_MASTER, masters + slots, masters},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct store_list list = all_chunks(lists[i].reads, lists[i].writes);
        if (i > 0)
            take_every_buffer();
        cr_expect(case_go_through(&test, &list, 1, NULL) == 0);
        struct offload_report report = moved();
        cr_expect(report.disk_read_bytes == lists[i].read, "list %zu", i);
        cr_expect(report.disk_written_bytes == lists[i].written, "list %zu", i);
    }
}

Test(store_file, slots_in_memory_cost_no_transfer)
{
    case_init(&test, &setup);
    struct store_list list = all_chunks(CHUNK_SLOT, CHUNK_SLOT);
    for (int i = 0; i < 3; i++)
        cr_expect(case_go_through(&test, &list, 2, NULL) == 0);
    struct offload_report report = moved();
    cr_expect(report.disk_read_bytes + report.disk_written_bytes == 0);
}

/* A ring with room for all of them. */
Test(store_file, chunks_that_stay_in_their_buffers_are_not_read)
{
    setup.threads = 16;
    case_init(&test, &setup);
    struct store_list list = all_chunks(0, CHUNK_STATES);
    cr_expect(case_go_through(&test, &list, 2, NULL) == 0);
    list.reads = CHUNK_STATES;
    cr_expect(case_go_through(&test, &list, 2, NULL) == 0);
    struct offload_report report = moved();
    cr_expect(report.disk_read_bytes == 0);
    cr_expect(report.disk_written_bytes == 2 * test.file_bytes);
}

Test(store_file, all_is_in_the_file_after_the_finish)
{
    setup.block_bytes = 4096; /* slow */
    setup.queue_depth = 1;
    setup.threads = 16;
    case_init(&test, &setup);
    struct store_list list = all_chunks(0, CHUNK_STATES);
    int fd = open_file(test.place.file_name);
    size_t at = test.file_bytes - AIO_ALIGN;
    unsigned char begin[16], last[16] = {0};
    cr_expect(case_go_through(&test, &list, 1, NULL) == 0);
    MUST(store_file_finish(test.store));
    /* the last chunk is fp32 masters and m: its last page has some of m */
    cr_expect(pread(fd, begin, sizeof begin, (off_t)at) == sizeof begin);
    cr_expect(memcmp(begin, last, sizeof begin) != 0);
    close(fd);
}

/* Their reads are still under way when the next list wants other parts. */
Test(store_file, chunks_that_no_one_acquires_do_no_harm)
{
    setup.params = true;
    case_init(&test, &setup);
    for (int i = 0; i < 40; i++) {
        unsigned part = i % 2 ? CHUNK_STATES : CHUNK_SLOT;
        struct store_list list = all_chunks(part, part);
        MUST(store_file_begin(test.store, &list));
        list.reads = list.writes = CHUNK_STATES | CHUNK_SLOT;
        cr_expect(case_go_through(&test, &list, 2, NULL) == 0);
    }
}

/* --- a disk in trouble ---------------------------------------------------- */

Test(store_file, a_read_that_fails_is_reported_and_no_one_waits)
{
    struct zd_error error = {0};
    case_init(&test, &setup);
    struct store_list list = all_chunks(CHUNK_STATES, CHUNK_STATES);
    cr_expect(case_go_through(&test, &list, 2, NULL) == 0);
    MUST(store_file_finish(test.store));
    int fd = open_file(test.place.file_name);
    cr_assert(ftruncate(fd, 8192) == 0);
    close(fd);
    list.writes = 0;
    cr_expect(case_go_through(&test, &list, 3, &error) == -1);
    cr_expect(error.status == ZD_ERR_IO);
    cr_expect_str_eq(error.code, "E0851");
    cr_expect(strstr(error.where, test.place.file_name));
    /* and so do all that follow, none of which hangs */
    cr_expect(case_go_through(&test, &list, 3, &error) == -1);
    cr_expect(store_file_finish(test.store) == ZD_ERR_IO);
    zd_error_clear();
}

/* A limit that comes down later is a device that is full. */
Test(store_file, a_write_that_fails_is_reported_and_no_one_waits)
{
    struct rlimit limit = {8192, RLIM_INFINITY};
    case_init(&test, &setup);
    struct store_list list = all_chunks(0, CHUNK_STATES);
    list.first = 3;
    list.count = 1;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    int found = case_go_through(&test, &list, 1, NULL);
    enum zd_status status = store_file_finish(test.store);
    limit.rlim_cur = RLIM_INFINITY; /* Criterion writes too */
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_expect(found == 0); /* it is written behind */
    cr_expect(status == ZD_ERR_IO);
    cr_expect_str_eq(zd_error_get()->code, "E0851");
    cr_expect(strstr(zd_error_get()->what, "write failed at byte"));
    zd_error_clear();
    cr_expect(store_file_begin(test.store, &list) == ZD_ERR_IO);
    zd_error_clear();
}

/* --- the check before step 1 ---------------------------------------------- */

static void expect_refused(
        const struct offload_options *options, uint64_t bytes, int local_size,
        enum zd_status status, const char *code, const char *what)
{
    cr_expect(store_file_check(options, bytes, local_size) == status);
    cr_expect_str_eq(zd_error_get()->code, code);
    cr_expect(strstr(zd_error_get()->what, what), "%s", zd_error_get()->what);
    cr_expect(zd_error_get()->help[0]);
    zd_error_clear();
}

Test(store_file, an_unusable_folder_is_reported_before_the_first_step,
     IN_SCRATCH)
{
    struct offload_options options = offload_options_default();
    expect_refused(&options, 1, 1, ZD_ERR_CONFIG, "E0655", "needs a folder");
    options.nvme_path = scratch.dir;
    MUST(store_file_check(&options, 1 << 20, 2));
    expect_refused(
            &options, 1ull << 60, 1, ZD_ERR_UNFIT, "E0657",
            "(1 x 1152921504606846976 bytes)");
    uint64_t free_bytes;
    MUST(fs_free_bytes(scratch.dir, &free_bytes));
    expect_refused(
            &options, free_bytes / 4 * 3, 2, ZD_ERR_UNFIT, "E0657", "(2 x ");
    expect_refused(
            &options, UINT64_MAX / 2, 4, ZD_ERR_UNFIT, "E0657", "are free");
    options.nvme_path = scratch_path(&scratch, "nothing");
    expect_refused(
            &options, 1, 1, ZD_ERR_NO_INPUT, "E0656",
            "there is no such folder");
    options.nvme_path = scratch_file(&scratch, "file", "x", 1);
    expect_refused(&options, 1, 1, ZD_ERR_CREATE, "E0656", "not a folder");
}

Test(store_file, a_folder_of_another_user_is_reported_before_the_first_step,
     IN_SCRATCH)
{
    struct offload_options options = offload_options_default();
    options.nvme_path = scratch.dir;
    cr_assert(chmod(scratch.dir, 0500) == 0);
    if (geteuid() == 0) /* who may write everywhere */
        cr_assert(setresuid(65534, 65534, 0) == 0);
    expect_refused(&options, 1, 1, ZD_ERR_DENIED, "E0656", "Permission denied");
    if (setresuid(0, 0, 0) != 0)
        chmod(scratch.dir, 0700);
}
