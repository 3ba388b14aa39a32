/* What opening and using a GPU meets when something is wrong with it: by the
 * failures that the stand-ins inject. */
#include "base/device/device_cuda.h"
#include "tests/base/device/gpu_case.h"
#include "tests/cuda/stand_in/stand_in.h"
#include "tests/support/child.h"

#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

/* Where there is none auto takes the CPU; one that is there and refuses is not
 * left aside in silence. */
Test(device_refused, an_opening_that_fails_says_why_with_a_fix)
{
    static const struct {
        const char *failure, *code, *word, *fix;
        enum device_backend automatic;
    } rows[] = {
            {"no_driver", "E1201", "no NVIDIA driver", "", DEVICE_CPU},
            {"no_device", "E1201", "no GPU", "", DEVICE_CPU},
            {"old_driver", "E1201", "is for CUDA 12.0", "", DEVICE_CUDA},
            {"busy", "E1202", "Stand-in GPU", "nvidia-smi", DEVICE_CUDA},
            {"no_code", "E1203", "compute capability 9.0", "gpu_archs",
             DEVICE_CUDA}};
    const struct zd_error *error = zd_error_get();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct device *device = NULL;
        const char *why = NULL;
        zd_standin_fail(rows[i].failure);
        zd_error_clear();
        cr_expect_eq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_ERR_UNFIT);
        cr_expect_null(device);
        cr_expect_str_eq(error->code, rows[i].code);
        cr_expect(strstr(error->what, rows[i].word), "%s", error->what);
        cr_expect(*error->help && strstr(error->help, rows[i].fix));
        cr_expect_eq(zd_exit_code(error->status), 69);
        cr_expect_eq(device_backend(), DEVICE_CPU);
        cr_expect_eq(
                device_resolve(DEVICE_AUTO), rows[i].automatic, "%s",
                rows[i].failure);
        cr_expect_eq(device_resolve(DEVICE_CPU), DEVICE_CPU);
        cr_expect_eq(device_resolve(DEVICE_CUDA), DEVICE_CUDA, "as was asked");
        if (strcmp(rows[i].code, "E1201") == 0) {
            cr_expect_eq(device_gpu_count(&why), 0);
            cr_expect(strstr(why, rows[i].word), "%s", why);
        }
    }
}

Test(device_refused, a_stream_is_refused_at_the_opening)
{
    struct device *device;
    zd_standin_fail("stream:1");
    cr_expect_neq(device_open(DEVICE_CUDA, 0, 1, &device), ZD_OK);
    cr_expect_str_eq(zd_error_get()->code, "E1206");
    cr_expect_null(device_current());
    zd_standin_fail(NULL);
    MUST(device_open(DEVICE_CUDA, 0, 1, &device));
    device_close(device);
}

Test(device_refused, page_locking_that_is_refused_is_an_error_of_that_call)
{
    struct device *device = gpu_case_open();
    int value = 1;
    void *a, *host;
    MUST(device_take(sizeof value, &a));
    zd_standin_fail("pin:1");
    REFUSED(device_write(a, &value, sizeof value), ZD_ERR_MEMORY, "E1205", "");
    MUST(device_write(a, &value, sizeof value));
    zd_standin_fail("pin:1");
    REFUSED(device_take_pinned(5000, &host), ZD_ERR_MEMORY, "E1205", "5000");
    MUST(device_check());
    device_give(a, sizeof value);
    device_close(device);
}

Test(device_refused, too_much_memory_says_how_much_there_is)
{
    setenv("ZD_STANDIN_MEMORY", "256M", 1);
    struct device *device = gpu_case_open();
    uint64_t before, after;
    void *a = NULL;
    MUST(device_used_bytes(&before));
    cr_expect_eq(device_take((size_t)300 << 20, &a), ZD_ERR_MEMORY);
    const char *what = zd_error_get()->what;
    cr_expect_str_eq(zd_error_get()->code, "E1204");
    cr_expect(strstr(what, "314572800"), "%s", what);
    cr_expect(strstr(what, "268435456"), "%s", what);
    MUST(device_used_bytes(&after));
    cr_expect_eq(before, after, "nothing stays behind");
    zd_error_clear();
    cr_expect_eq(device_check(), ZD_OK, "it is no failure of the GPU");
    MUST(device_take((size_t)32 << 20, &a));
    device_give(a, (size_t)32 << 20);
    device_close(device);
}

static uint64_t one(const void *argument)
{
    return 1;
}

/* As CUDA does it; so that no test of ours forks behind a count. */
Test(device_refused, a_child_of_a_process_that_counted_gpus_has_none)
{
    cr_expect_eq(child_with_gpu(one, NULL, "forward"), 1);
    cr_assert_eq(device_gpu_count(NULL), 1);
    cr_expect_eq(child_with_gpu(one, NULL, "forward"), CHILD_NO_GPU);
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
    MUST(device_take(4, &a));
    MUST(device_check());
    zd_standin_enqueue(device_cuda_stream(NULL), break_it, NULL);
    REFUSED(device_finish(), ZD_ERR_DEVICE, "E1206", "");
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
    MUST(event_create(&event));
    zd_standin_enqueue(device_cuda_stream(NULL), break_it, NULL);
    MUST(stream_record(NULL, event));
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
        MUST(device_open(DEVICE_CUDA, rank, 4, &device[rank]));
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

/* CUDA_VISIBLE_DEVICES: the process' first, and so on, up to the first that is
 * not there; one that is named twice hides all. */
static struct visible {
    char list[8], pci[2][16];
    int count;
} visible[] = {
        {"3,1", {"0000:04:00.0", "0000:02:00.0"}, 2},
        {"2,4,1", {"0000:03:00.0"}, 1},
        {.list = ""},
        {.list = "1,2,1"}};

ParameterizedTestParameters(device_refused, a_process_sees_the_gpus_of_its_list)
{
    return cr_make_param_array(struct visible, visible, 4);
}

ParameterizedTest(
        struct visible *v, device_refused, a_process_sees_the_gpus_of_its_list)
{
    setenv("ZD_STANDIN_GPUS", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", v->list, 1);
    cr_expect_eq(device_gpu_count(NULL), v->count);
    cr_expect_eq(
            device_resolve(DEVICE_AUTO), v->count ? DEVICE_CUDA : DEVICE_CPU);
    for (int i = 0; i < v->count; i++) {
        struct device *device;
        MUST(device_open(DEVICE_CUDA, i, v->count, &device));
        device_use(device);
        cr_expect_str_eq(device_facts().pci, v->pci[i]);
        cr_expect_eq(device_facts().index, i);
        device_close(device);
    }
}

Test(device_refused, a_list_says_which_gpus_ranks_take)
{
    setenv("ZD_STANDIN_GPUS", "4", 1);
    struct device_options options = {.backend = DEVICE_AUTO, .gpus = "3,1"};
    const int expected[] = {3, 1, 3, 1, 3};
    int place;
    for (int rank = 0; rank < 5; rank++) {
        MUST(device_place(&options, rank, &place));
        cr_expect_eq(place, expected[rank]);
    }
    options.gpus = "0,4";
    MUST(device_place(&options, 0, &place));
    REFUSED(device_place(&options, 1, &place), ZD_ERR_UNFIT, "E1208",
            "no GPU 4");
    options.gpus = "auto";
    MUST(device_place(&options, 6, &place));
    cr_expect_eq(place, 6);
    options.backend = DEVICE_CPU;
    options.gpus = "9";
    MUST(device_place(&options, 1, &place));
}
