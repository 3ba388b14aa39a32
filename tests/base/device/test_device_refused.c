/* What opening and using a GPU meets when something is wrong with it: by the
 * failures that the stand-ins inject. */
#include "base/device/device_cuda.h"
#include "tests/base/device/gpu_case.h"
#include "tests/cuda/stand_in/stand_in.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_refused(
        const char *failure, const char *code, const char *word)
{
    struct device *device = NULL;
    zd_standin_fail(failure);
    zd_error_clear();
    cr_expect_eq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_ERR_UNFIT);
    cr_expect_null(device);
    cr_expect_str_eq(zd_error_get()->code, code);
    cr_expect(strstr(zd_error_get()->what, word), "%s", zd_error_get()->what);
    cr_expect(zd_error_get()->help[0], "a fix");
    cr_expect_eq(zd_exit_code(zd_error_get()->status), 69);
    cr_expect_eq(device_backend(), DEVICE_CPU);
}

Test(device_refused, without_a_gpu_auto_takes_the_cpu_and_says_why)
{
    const char *why;
    expect_refused("no_driver", "E1201", "no NVIDIA driver");
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CPU);
    expect_refused("no_device", "E1201", "no GPU");
    cr_expect_eq(device_gpu_count(&why), 0);
    cr_expect(strstr(why, "no GPU"));
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CPU);
    cr_expect_eq(device_resolve(DEVICE_CUDA), DEVICE_CUDA, "as was asked");
}

/* A GPU that is there and refuses is not left aside in silence. */
Test(device_refused, a_driver_that_does_not_start_is_an_error)
{
    expect_refused("old_driver", "E1201", "is for CUDA 12.0");
    cr_expect_eq(device_gpu_count(NULL), 0);
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CUDA);
    cr_expect_eq(device_resolve(DEVICE_CPU), DEVICE_CPU);
}

Test(device_refused, a_busy_gpu_is_an_error)
{
    zd_standin_fail("busy");
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CUDA);
    expect_refused("busy", "E1202", "Stand-in GPU");
    cr_expect(strstr(zd_error_get()->help, "nvidia-smi"));
}

Test(device_refused, a_gpu_that_the_program_was_not_built_for)
{
    expect_refused("no_code", "E1203", "compute capability 9.0");
    cr_expect(strstr(zd_error_get()->help, "gpu_archs"));
}

Test(device_refused, a_stream_is_refused_at_the_opening)
{
    struct device *device;
    zd_standin_fail("stream:1");
    cr_expect_neq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_OK);
    cr_expect_str_eq(zd_error_get()->code, "E1206");
    cr_expect_null(device_current());
    zd_standin_fail(NULL);
    cr_expect_eq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_OK);
    device_close(device);
}

Test(device_refused, page_locking_is_refused_at_the_first_write)
{
    struct device *device = gpu_case_open();
    int value = 1;
    void *a;
    cr_assert_eq(device_take(sizeof value, &a), ZD_OK);
    zd_standin_fail("pin:1");
    cr_expect_eq(device_write(a, &value, sizeof value), ZD_ERR_MEMORY);
    cr_expect_str_eq(zd_error_get()->code, "E1205");
    cr_expect_eq(device_write(a, &value, sizeof value), ZD_OK);
    device_give(a, sizeof value);
    device_close(device);
}

Test(device_refused, too_much_memory_says_how_much_there_is)
{
    setenv("ZD_STANDIN_MEMORY", "256M", 1);
    struct device *device = gpu_case_open();
    uint64_t before, after;
    void *a = NULL;
    cr_assert_eq(device_used_bytes(&before), ZD_OK);
    cr_expect_eq(device_take((size_t)300 << 20, &a), ZD_ERR_MEMORY);
    const char *what = zd_error_get()->what;
    cr_expect_str_eq(zd_error_get()->code, "E1204");
    cr_expect(strstr(what, "314572800"), "%s", what);
    cr_expect(strstr(what, "268435456"), "%s", what);
    cr_assert_eq(device_used_bytes(&after), ZD_OK);
    cr_expect_eq(before, after, "nothing stays behind");
    zd_error_clear();
    cr_expect_eq(device_check(), ZD_OK, "it is no failure of the GPU");
    cr_expect_eq(device_take((size_t)32 << 20, &a), ZD_OK);
    device_give(a, (size_t)32 << 20);
    device_close(device);
}

static uint64_t count_of_child(void)
{
    uint64_t count = 99;
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        count = (uint64_t)device_gpu_count(NULL);
        _exit(write(ends[1], &count, sizeof count) != sizeof count);
    }
    cr_assert_eq(read(ends[0], &count, sizeof count), sizeof count);
    close(ends[0]), close(ends[1]);
    waitpid(child, NULL, 0);
    return count;
}

/* As CUDA does it; so that no test of ours forks behind a count. */
Test(device_refused, a_child_of_a_process_that_counted_gpus_has_none)
{
    cr_expect_eq(count_of_child(), 1);
    cr_assert_eq(device_gpu_count(NULL), 1);
    cr_expect_eq(count_of_child(), 0);
}

Test(device_refused, pinning_is_refused_with_a_fix)
{
    struct device *device = gpu_case_open();
    void *host;
    zd_standin_fail("pin:1");
    cr_expect_eq(device_take_pinned(5000, &host), ZD_ERR_MEMORY);
    cr_expect_str_eq(zd_error_get()->code, "E1205");
    cr_expect(strstr(zd_error_get()->what, "5000"));
    zd_error_clear();
    cr_expect_eq(device_check(), ZD_OK);
    device_close(device);
}

static void break_it(void *ctx)
{
    (void)ctx;
    zd_standin_set_sticky(cudaErrorIllegalAddress, "broken by the test");
}

Test(device_refused, a_gpu_failure_is_reported_and_stays)
{
    struct device *device = gpu_case_open();
    void *a;
    int value = 1;
    cr_assert_eq(device_take(4, &a), ZD_OK);
    cr_expect_eq(device_check(), ZD_OK);
    zd_standin_enqueue(device_cuda_stream(NULL), break_it, NULL);
    cr_expect_eq(device_finish(), ZD_ERR_DEVICE);
    cr_expect_str_eq(zd_error_get()->code, "E1206");
    zd_error_clear();
    cr_expect_eq(device_check(), ZD_ERR_DEVICE);
    const char *what = zd_error_get()->what;
    cr_expect_str_eq(zd_error_get()->code, "E1206");
    cr_expect(strstr(what, "GPU 0 (Stand-in GPU)"), "%s", what);
    cr_expect(strstr(what, "cudaErrorIllegalAddress"), "%s", what);
    cr_expect(strstr(zd_error_get()->help, "Xid"), "what to do");
    zd_error_clear();
    cr_expect_eq(device_write(a, &value, sizeof value), ZD_ERR_DEVICE);
    zd_error_clear();
    cr_expect_eq(device_check(), ZD_ERR_DEVICE, "for ever");
    zd_standin_forget();
    device_give(a, 4);
    device_close(device);
}

/* Who asks whether something is done must not ask for ever. */
Test(device_refused, events_of_a_failed_gpu_end)
{
    struct device *device = gpu_case_open();
    struct event *event;
    cr_assert_eq(event_create(&event), ZD_OK);
    zd_standin_enqueue(device_cuda_stream(NULL), break_it, NULL);
    cr_assert_eq(stream_record(NULL, event), ZD_OK);
    cr_expect_eq(event_wait(event), ZD_ERR_DEVICE);
    cr_expect(event_is_done(event));
    zd_error_clear();
    zd_standin_forget();
    event_destroy(event);
    device_close(device);
}

Test(device_refused, ranks_take_gpus_in_turn_and_see_that_they_share_one)
{
    setenv("ZD_STANDIN_GPUS", "2", 1);
    struct device *device[4];
    struct device_facts facts[4];
    for (int rank = 0; rank < 4; rank++) {
        cr_assert_eq(device_open(DEVICE_CUDA, rank, 4, &device[rank]), ZD_OK);
        device_use(device[rank]);
        facts[rank] = device_facts();
    }
    for (int rank = 0; rank < 4; rank++) {
        cr_expect_eq(facts[rank].index, rank % 2);
        cr_expect_str_eq(facts[rank].uuid, facts[rank % 2].uuid);
        device_close(device[rank]);
    }
    cr_expect_str_neq(facts[0].uuid, facts[1].uuid);
}

/* As CUDA_VISIBLE_DEVICES has them: the process' first, and so on. */
static void expect_visible(const char *list, const char *const *pci, int count)
{
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    cr_expect_eq(device_gpu_count(NULL), count);
    for (int i = 0; i < count; i++) {
        struct device *device;
        cr_assert_eq(device_open(DEVICE_CUDA, i, count, &device), ZD_OK);
        device_use(device);
        cr_expect_str_eq(device_facts().pci, pci[i]);
        cr_expect_eq(device_facts().index, i);
        device_close(device);
    }
}

Test(device_refused, a_process_sees_the_gpus_that_it_is_left_in_their_order)
{
    const char *const pci[] = {"0000:04:00.0", "0000:02:00.0"};
    setenv("ZD_STANDIN_GPUS", "4", 1);
    expect_visible("3,1", pci, 2);
}

Test(device_refused, a_list_of_gpus_ends_at_the_first_that_is_not_there)
{
    const char *const pci[] = {"0000:03:00.0"};
    setenv("ZD_STANDIN_GPUS", "4", 1);
    expect_visible("2,4,1", pci, 1);
}

Test(device_refused, an_empty_list_leaves_none)
{
    expect_visible("", NULL, 0);
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CPU);
}

Test(device_refused, a_gpu_named_twice_leaves_none)
{
    setenv("ZD_STANDIN_GPUS", "4", 1);
    expect_visible("1,2,1", NULL, 0);
}

Test(device_refused, a_list_says_which_gpus_ranks_take)
{
    setenv("ZD_STANDIN_GPUS", "4", 1);
    struct device_options options = {.backend = DEVICE_AUTO, .gpus = "3,1"};
    const int expected[] = {3, 1, 3, 1, 3};
    int place;
    for (int rank = 0; rank < 5; rank++) {
        cr_assert_eq(device_place(&options, rank, &place), ZD_OK);
        cr_expect_eq(place, expected[rank]);
    }
    options.gpus = "0,4";
    cr_expect_eq(device_place(&options, 0, &place), ZD_OK);
    cr_expect_eq(device_place(&options, 1, &place), ZD_ERR_UNFIT);
    cr_expect_str_eq(zd_error_get()->code, "E1208");
    cr_expect(strstr(zd_error_get()->what, "no GPU 4"));
    zd_error_clear();
    options.gpus = "auto";
    cr_expect_eq(device_place(&options, 6, &place), ZD_OK);
    cr_expect_eq(place, 6);
    options.backend = DEVICE_CPU;
    options.gpus = "9";
    cr_expect_eq(device_place(&options, 1, &place), ZD_OK);
}
