#include "base/must.h"
#include "offload/aio.h"
#include "tests/support/scratch_suite.h"

#include <criterion/parameterized.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 20, OPS = 40 };

/* What is waited for: ops that are done. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done;
};

#define WAITER                                                                 \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0                 \
    }

TestSuite(aio, IN_SCRATCH);

static void count_done(struct aio_op *op)
{
    struct waiter *waiter = op->ctx;
    pthread_mutex_lock(&waiter->lock);
    waiter->done++;
    pthread_cond_signal(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

static void wait_for(struct waiter *waiter, int count)
{
    pthread_mutex_lock(&waiter->lock);
    while (waiter->done < count)
        pthread_cond_wait(&waiter->changed, &waiter->lock);
    waiter->done = 0;
    pthread_mutex_unlock(&waiter->lock);
}

struct way { /* one set of options to go through everything with */
    struct aio_options options;
    bool direct;
};

static char *aligned(size_t bytes)
{
    void *data = NULL;
    cr_assert(posix_memalign(&data, AIO_ALIGN, bytes) == 0);
    memset(data, 0, bytes);
    return data;
}

static char byte_of(size_t at, int round)
{
    return (char)(at * 2654435761u >> 13 ^ (unsigned)round * 37u);
}

/* Ops of different lengths that together are the whole file, in a shuffled
 * order; odd lengths when the file allows them. */
static void cut_file(struct aio_op *ops, bool odd)
{
    size_t unit = odd ? 4001 : AIO_ALIGN, at = 0;
    for (int i = 0; i < OPS; i++) {
        size_t bytes = (size_t)(1 + i * 7 % 11) * unit;
        if (i == OPS - 1)
            bytes = FILE_BYTES - at;
        ops[i].offset = at;
        ops[i].bytes = bytes;
        at += bytes;
    }
    for (int i = OPS - 1; i > 0; i--) {
        int j = (i * 13 + 5) % (i + 1);
        struct aio_op op = ops[i];
        ops[i] = ops[j];
        ops[j] = op;
    }
}

static void submit_all(
        struct aio *aio, const struct aio_file *file, struct aio_op *ops,
        char *data, bool is_write, struct waiter *waiter)
{
    for (int i = 0; i < OPS; i++) {
        ops[i].file = file;
        ops[i].is_write = is_write;
        ops[i].data = data + ops[i].offset;
        ops[i].done = count_done;
        ops[i].ctx = waiter;
        aio_submit(aio, &ops[i]);
    }
    wait_for(waiter, OPS);
}

static struct way ways[] = {
        {{65536, 8}, true}, {{4096, 1}, true}, {{12288, 5}, false}};

ParameterizedTestParameters(aio, bytes_round_trip)
{
    return cr_make_param_array(struct way, ways, sizeof ways / sizeof *ways);
}

ParameterizedTest(struct way *way, aio, bytes_round_trip)
{
    struct aio_file file;
    struct aio *aio;
    struct aio_op ops[OPS] = {0};
    struct waiter waiter = WAITER;
    ZD_FREED char *data = aligned(FILE_BYTES);

    MUST(aio_file_create(
            &file, scratch.dir, "a.offload", FILE_BYTES, way->direct));
    cr_expect(!file.is_direct || way->direct);
    MUST(aio_create(&way->options, &aio));
    cut_file(ops, !file.is_direct);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < FILE_BYTES; i++)
            data[i] = byte_of(i, round);
        submit_all(aio, &file, ops, data, true, &waiter);
        memset(data, 0x55, FILE_BYTES);
        submit_all(aio, &file, ops, data, false, &waiter);
        size_t wrong = 0;
        for (size_t i = 0; i < FILE_BYTES; i++)
            wrong += data[i] != byte_of(i, round);
        cr_expect(wrong == 0, "%zu bytes differ", wrong);
        for (int i = 0; i < OPS; i++)
            MUST(aio_op_status(&ops[i]));
    }
    aio_destroy(aio);
    aio_file_close(&file);
}

/* --- errors --------------------------------------------------------------- */

/* The file is cut behind an op's back: it ends early. */
Test(aio, an_error_names_the_file_the_byte_and_the_reason)
{
    struct aio_file file;
    struct aio *aio;
    struct aio_options options = {.block_bytes = 8192, .queue_depth = 2};
    struct waiter waiter = WAITER;
    struct aio_op op = {
            .file = &file,
            .bytes = 65536,
            .offset = 4096,
            .done = count_done,
            .ctx = &waiter,
            .data = aligned(65536)};
    MUST(aio_file_create(&file, scratch.dir, "short", 1 << 17, true));
    MUST(aio_create(&options, &aio));
    cr_assert(ftruncate(file.fd, 32768) == 0);
    aio_submit(aio, &op);
    wait_for(&waiter, 1);
    cr_expect(aio_op_status(&op) == ZD_ERR_IO);
    cr_expect_str_eq(zd_error_get()->code, "E0851");
    cr_expect(
            strstr(zd_error_get()->what, "read failed at byte 32768"), "%s",
            zd_error_get()->what);
    cr_expect(strstr(zd_error_get()->where, "/short"));
    zd_error_clear();
    /* the next one is none the worse */
    op.bytes = 8192;
    aio_submit(aio, &op);
    wait_for(&waiter, 1);
    MUST(aio_op_status(&op));
    aio_destroy(aio);
    aio_file_close(&file);
    free(op.data);
}

Test(aio, the_file_has_no_name_and_its_space_is_certain)
{
    struct aio_file file;
    struct stat info;
    MUST(aio_file_create(&file, scratch.dir, "mine", 1 << 20, true));
    cr_expect(!fs_exists(file.path));
    cr_expect(fstat(file.fd, &info) == 0);
    cr_expect(info.st_size == 1 << 20);
    cr_expect(info.st_blocks * 512 >= 1 << 20);
    /* a second one of that name is another file */
    struct aio_file other;
    MUST(aio_file_create(&other, scratch.dir, "mine", 4096, true));
    aio_file_close(&other);
    aio_file_close(&file);
}

/* More than any disk has, and less than a file may have; with a limit of 1 MiB.
 */
Test(aio, a_file_that_cannot_be_created_says_why)
{
    static const struct {
        const char *name;
        uint64_t bytes;
        enum zd_status status;
        const char *code, *what, *help;
    } cases[] = {
            {"big", 1ull << 43, ZD_ERR_IO, "E0852", "8796093022208 bytes",
             "free some space"},
            {"limited", 1 << 21, ZD_ERR_UNFIT, "E0658", "2097152 bytes",
             "ulimit -f unlimited"},
    };
    struct rlimit limit = {1 << 20, RLIM_INFINITY};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct aio_file file;
        if (i == 1)
            cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        enum zd_status status = aio_file_create(
                &file, scratch.dir, cases[i].name, cases[i].bytes, true);
        cr_expect_eq(status, cases[i].status, "%s", cases[i].name);
        const struct zd_error *error = zd_error_get();
        cr_expect_str_eq(error->code, cases[i].code);
        cr_expect(strstr(error->what, cases[i].what), "%s", error->what);
        cr_expect(strstr(error->help, cases[i].help), "%s", error->help);
        zd_error_clear();
    }
}
