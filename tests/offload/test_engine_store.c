/* The engine over a store that the test has in its hands: one that fails in the
 * middle of a step (the next call tells it, and no one waits forever), and one
 * whose last chunk takes long. */
#include "offload/engine.h"
#include "tests/offload/small_engine.h"
#include "tests/support/scratch_suite.h"
#include "tests/support/wrap.h"

#include <criterion/criterion.h>
#include <time.h>

TestSuite(offload_engine_store, IN_SCRATCH);

enum { COUNT = 16384 };

static struct small_engine engine;
static uint16_t device[COUNT];

/* chunk_acquire, which is linked to this: it fails from the nth call on, or
 * chunks from `held_from` on are not given out while is_held. */
static bool fails;
static int calls_left;
static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hold_changed = PTHREAD_COND_INITIALIZER;
static bool is_held;
static int held_from;

static void pass_hold(int chunk)
{
    pthread_mutex_lock(&hold_lock);
    while (is_held && chunk >= held_from)
        pthread_cond_wait(&hold_changed, &hold_lock);
    pthread_mutex_unlock(&hold_lock);
}

WRAP(enum zd_status, chunk_acquire, struct offload *offload, int chunk,
     struct chunk_memory *memory_out)
{
    if (fails && __atomic_fetch_sub(&calls_left, 1, __ATOMIC_RELAXED) <= 0)
        return ZD_FAIL(ZD_ERR_IO, "E0851", "the disk is gone");
    if (!offload->file)
        pass_hold(chunk);
    return __real_chunk_acquire(offload, chunk, memory_out);
}

/* The disk's part of it. */
WRAP(enum zd_status, store_file_acquire, struct store_file *file, int chunk,
     struct chunk_memory *memory_out)
{
    pass_hold(chunk);
    return __real_store_file_acquire(file, chunk, memory_out);
}

static void hold(bool is)
{
    pthread_mutex_lock(&hold_lock);
    is_held = is;
    pthread_cond_broadcast(&hold_changed);
    pthread_mutex_unlock(&hold_lock);
}

/* `params`: where they live, if not on the device. */
static void make_tiers(
        enum offload_tier optimizer, enum offload_tier params,
        enum stream_mode mode)
{
    small_engine_init(&engine, 2, COUNT, COUNT);
    engine.options.optimizer = optimizer;
    engine.options.params = params;
    engine.options.nvme_path = scratch.dir;
    engine.options.chunk_bytes = 1024;
    for (int s = 0; s < 2; s++)
        engine.extents[s].layout =
                (struct optim_layout){{OPTIM_8BIT, OPTIM_8BIT}};
    engine.request.dtype = DTYPE_BF16;
    engine.request.params_on_host = params != OFFLOAD_NONE;
    engine.place.worker_threads = 3;
    engine.place.file_name = "rank0";
    MUST(small_engine_streams(&engine, mode));
    MUST(small_engine_make(&engine));
}

static void make(bool in_file, enum stream_mode mode)
{
    make_tiers(
            in_file ? OFFLOAD_NVME : OFFLOAD_CPU,
            in_file ? OFFLOAD_NVME : OFFLOAD_NONE, mode);
}

/* Every call of a step, and the first that fails. */
static enum zd_status run_step(void)
{
    struct exact_sum sum = {0};
    struct optim_step step = {
            .options = &engine.optim, .t = 1, .grad_scale = 1};
    for (int s = 1; s >= 0; s--) {
        ZD_TRY(offload_grads_down(
                engine.offload, s, device, (struct token){0}, 0, true));
        ZD_TRY(token_wait(NULL, offload_grads_left(engine.offload, s)));
    }
    ZD_TRY(offload_squares(engine.offload, &sum));
    ZD_TRY(offload_update(engine.offload, &step, NULL));
    for (int s = 0; s < 2; s++)
        if (engine.request.params_on_host)
            ZD_TRY(offload_params_up(engine.offload, s, device, NULL));
        else
            ZD_TRY(offload_params_wait(engine.offload, s));
    return offload_finish(engine.offload);
}

/* `calls`: chunks that a whole step acquires. */
static void fails_anywhere(bool in_file, int calls)
{
    for (int n = 0; n <= calls; n += calls / 16)
        for (int mode = STREAM_INLINE; mode <= STREAM_THREAD; mode++) {
            make(in_file, (enum stream_mode)mode);
            calls_left = n;
            fails = true;
            enum zd_status status = run_step();
            cr_assert_eq(
                    status, n < calls ? ZD_ERR_IO : ZD_OK, "after %d chunks",
                    n);
            if (n < calls) {
                cr_assert_str_eq(zd_error_get()->code, "E0851");
                /* also at every later call */
                zd_error_clear();
                cr_assert_eq(offload_finish(engine.offload), ZD_ERR_IO);
                cr_assert_str_eq(zd_error_get()->what, "the disk is gone");
            }
            zd_error_clear();
            fails = false;
            small_engine_end(&engine);
        }
}

Test(offload_engine_store, the_next_call_reports_a_failed_chunk)
{
    enum { CHUNKS = 2 * COUNT / 256 };
    fails_anywhere(false, CHUNKS);    /* update */
    fails_anywhere(true, 3 * CHUNKS); /* gradients, update, parameters */
}

/* The next forward pass may use what is updated while the rest is not. */
Test(offload_engine_store, releases_segments_one_by_one)
{
    static uint16_t params[2][COUNT];
    struct exact_sum sum = {0};
    make(false, STREAM_THREAD);
    held_from = COUNT / 256; /* the second segment */
    struct optim_step step = {
            .options = &engine.optim,
            .t = 1,
            .grad_scale = 1,
            .learning_rate = 0.1};
    for (int i = 0; i < COUNT; i++)
        device[i] = float_to_bf16(1);
    for (int s = 0; s < 2; s++) {
        offload_params_to(engine.offload, s, params[s]);
        MUST(offload_grads_down(
                engine.offload, s, device, (struct token){0}, 0, true));
    }
    MUST(offload_squares(engine.offload, &sum));
    hold(true);
    MUST(offload_update(engine.offload, &step, NULL));
    MUST(offload_params_wait(engine.offload, 0));
    for (int i = 0; i < COUNT; i++)
        cr_assert_neq(params[0][i], 0);
    hold(false);
    MUST(offload_params_wait(engine.offload, 1));
    for (int i = 0; i < COUNT; i++)
        cr_assert_neq(params[1][i], 0);
    small_engine_end(&engine);
}

/* --- what waits are for --------------------------------------------------- */

/* What is held back takes a tenth of a second, the others next to nothing; on a
 * machine so busy that one of them takes longer by chance, twice as long the
 * next time. */
enum { ATTEMPTS = 7 };

static void sleep_a_while(void *ctx, int64_t attempt)
{
    int64_t ms = 100 << attempt;
    struct timespec a_while = {ms / 1000, ms % 1000 * 1000000};
    (void)ctx;
    nanosleep(&a_while, NULL);
}

static void *let_go_later(void *attempt)
{
    sleep_a_while(NULL, *(int *)attempt);
    hold(false);
    return NULL;
}

/* deploy/test.sh counts these lines. */
static void tell_again(const char *what, const double waits[4], int attempt)
{
    printf("# again: %s: host %g s, disk %g s, up %g s, down %g s, of %d ms\n",
           what, waits[0], waits[1], waits[2], waits[3], 100 << attempt);
    fflush(stdout);
}

/* Chunks of an update, or of the parameters after it, are not given out for a
 * while, and the trainer waits for the second segment's parameters. */
static struct offload_report wait_for_params(
        enum offload_tier optimizer, enum offload_tier params, bool in_update,
        int attempt)
{
    struct exact_sum sum = {0};
    struct optim_step step = {
            .options = &engine.optim, .t = 1, .grad_scale = 1};
    struct timeline done;
    pthread_t thread;
    make_tiers(optimizer, params, STREAM_THREAD);
    held_from = in_update ? COUNT / 256 : 0;
    MUST(timeline_create(&done));
    for (int s = 0; s < 2; s++) {
        if (!engine.request.params_on_host)
            offload_params_to(engine.offload, s, device);
        MUST(offload_grads_down(
                engine.offload, s, device, (struct token){0}, 0, true));
    }
    MUST(offload_squares(engine.offload, &sum));
    offload_report_take(engine.offload);
    hold(in_update);
    MUST(offload_update(engine.offload, &step, NULL));
    if (!in_update) {
        MUST(offload_update_wait(engine.offload, 1));
        jobs_wait(engine.offload);
        offload_report_take(engine.offload);
        hold(true);
    }
    cr_assert_eq(pthread_create(&thread, NULL, let_go_later, &attempt), 0);
    if (engine.request.params_on_host) {
        MUST(offload_params_up(engine.offload, 1, device, &done));
        MUST(offload_update_wait(engine.offload, 1));
        MUST(token_wait(NULL, timeline_last(&done)));
    } else {
        MUST(offload_params_wait(engine.offload, 1));
    }
    pthread_join(thread, NULL);
    struct offload_report report = offload_report_take(engine.offload);
    timeline_destroy(&done);
    small_engine_end(&engine);
    return report;
}

static bool is_longest(const double waits[4], int which)
{
    for (int other = 0; other < 4; other++)
        if (other != which && waits[other] >= waits[which])
            return false;
    return true;
}

Test(offload_engine_store, waits_belong_to_what_they_are_for)
{
    static const struct {
        const char *label;
        enum offload_tier optimizer, params;
        bool in_update, on_disk;
    } cases[] = {
            {"update", OFFLOAD_CPU, OFFLOAD_NONE, true, false},
            {"update, params on the host", OFFLOAD_CPU, OFFLOAD_CPU, true,
             false},
            {"update's reads", OFFLOAD_NVME, OFFLOAD_NONE, true, true},
            {"update's reads, params on the host", OFFLOAD_NVME, OFFLOAD_CPU,
             true, true},
            {"update's reads, params on NVMe", OFFLOAD_NVME, OFFLOAD_NVME, true,
             true},
            {"reads of params", OFFLOAD_NVME, OFFLOAD_NVME, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool is_right = false;
        for (int attempt = 0; attempt < ATTEMPTS && !is_right; attempt++) {
            struct offload_report report = wait_for_params(
                    cases[i].optimizer, cases[i].params, cases[i].in_update,
                    attempt);
            double waits[] = {
                    report.wait_host_seconds, report.wait_disk_seconds,
                    report.wait_up_seconds, report.wait_down_seconds};
            is_right = is_longest(waits, cases[i].on_disk);
            if (!is_right)
                tell_again(cases[i].label, waits, attempt);
        }
        cr_expect(is_right, "%s", cases[i].label);
    }
}

/* A stream up that is slow itself: no one else is to blame. */
Test(offload_engine_store, waits_for_a_slow_copy_are_the_copys)
{
    struct timeline done;
    make_tiers(OFFLOAD_NVME, OFFLOAD_NVME, STREAM_THREAD);
    MUST(timeline_create(&done));
    MUST(run_step());
    offload_report_take(engine.offload);
    bool is_right = false;
    for (int attempt = 0; attempt < ATTEMPTS && !is_right; attempt++) {
        MUST(stream_call(engine.place.up, sleep_a_while, NULL, attempt));
        MUST(offload_params_up(engine.offload, 0, device, &done));
        MUST(token_wait(NULL, timeline_last(&done)));
        struct offload_report report = offload_report_take(engine.offload);
        double waits[] = {
                report.wait_host_seconds, report.wait_disk_seconds,
                report.wait_up_seconds, report.wait_down_seconds};
        is_right = is_longest(waits, 2);
        if (!is_right)
            tell_again("a slow copy", waits, attempt);
    }
    cr_expect(is_right);
    timeline_destroy(&done);
    small_engine_end(&engine);
}
