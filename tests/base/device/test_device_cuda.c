/* Memory of a GPU as the host has it: with stand-ins, or on a GPU. */
#include "base/file/fs.h"
#include "tests/base/device/gpu_case.h"
#include "tests/support/gate.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 1 << 20 };

static int *numbers(int first)
{
    int *array = malloc(COUNT * sizeof *array);
    for (int i = 0; i < COUNT; i++)
        array[i] = first + i;
    return array;
}

Test(device_cuda_open, says_what_it_is)
{
    struct device *device = gpu_case_open();
    MUST(device_share(device, 1));
    struct device_facts facts = device_facts();
    cr_expect_eq(device_backend(), DEVICE_CUDA);
    cr_expect_eq(facts.backend, DEVICE_CUDA);
    cr_expect(facts.name[0]);
    cr_expect_eq(strlen(facts.uuid), sizeof "GPU-" - 1 + 36, "%s", facts.uuid);
    cr_expect_eq(facts.index, 0);
    cr_expect_gt(facts.multiprocessors, 0);
    cr_expect_geq(10 * facts.major + facts.minor, 75);
    cr_expect_gt(facts.free_bytes, 0u);
    cr_expect_leq(facts.free_bytes, facts.total_bytes);
    cr_expect_eq(facts.free_bytes + facts.context_bytes, facts.total_bytes);
    cr_expect_eq(strlen(facts.pci), sizeof "0000:3b:00.0" - 1, "%s", facts.pci);
    /* Within a major version a newer toolkit runs on an older driver. */
    cr_expect_geq(facts.driver / 1000, facts.runtime / 1000);
    device_close(device);
    cr_expect_eq(device_backend(), DEVICE_CPU, "a closed one is nobody's");
}

Test(device_cuda_open, auto_takes_a_gpu_if_there_is_one)
{
    if (device_gpu_count(NULL) == 0)
        cr_skip_test("no GPU");
    cr_expect_eq(device_resolve(DEVICE_AUTO), DEVICE_CUDA);
    cr_expect_eq(device_resolve(DEVICE_CPU), DEVICE_CPU);
}

TestSuite(device_cuda, ON_GPU);

Test(device_cuda, memory_is_clear_and_holds_what_is_written)
{
    int *host = numbers(7), *back = calloc(COUNT, sizeof *back);
    size_t bytes = COUNT * sizeof *host;
    void *a, *b;
    MUST(device_take(bytes, &a));
    MUST(device_take(bytes, &b));
    memset(back, 1, bytes);
    MUST(device_read(back, a, bytes));
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(back[i], 0);
    /* longer than all of the staging */
    MUST(device_write((char *)a + 4, host, bytes - 8));
    MUST(device_move(b, a, bytes));
    MUST(device_clear(a, bytes));
    MUST(device_read(back, b, bytes));
    cr_expect_eq(back[0], 0);
    cr_expect_eq(back[COUNT - 1], 0);
    for (int i = 1; i < COUNT - 1; i++)
        cr_assert_eq(back[i], host[i - 1]);
    MUST(device_read(back, a, bytes));
    cr_expect_eq(back[1], 0);
    MUST(device_check());
    device_give(a, bytes);
    device_give(b, bytes);
    free(host);
    free(back);
}

Test(device_cuda, written_memory_of_the_host_is_free_at_once)
{
    struct gate gate = GATE;
    int value = 1, values[3] = {0};
    void *a;
    MUST(device_take(sizeof values, &a));
    /* the first takes page-locked memory, for which a driver may wait */
    MUST(device_write(a, values, sizeof values));
    MUST(device_finish());
    MUST(stream_call(NULL, gate_pass, &gate, 0));
    for (int i = 0; i < 3; i++) { /* nothing of it can be done yet */
        MUST(device_write((int *)a + i, &value, sizeof value));
        value++;
    }
    gate_open(&gate);
    MUST(device_read(values, a, sizeof values));
    cr_expect_eq(values[0], 1);
    cr_expect_eq(values[1], 2);
    cr_expect_eq(values[2], 3);
    device_give(a, sizeof values);
}

Test(device_cuda, staging_may_be_lent)
{
    int *host = numbers(3), *back = calloc(COUNT, sizeof *back);
    size_t bytes = COUNT * sizeof *host;
    void *a, *pinned;
    MUST(device_take(bytes, &a));
    MUST(device_take_pinned(DEVICE_STAGING_BYTES, &pinned));
    for (int lent = 0; lent < 3; lent++) { /* its own, ours, its own */
        MUST(device_lend_staging(lent == 1 ? pinned : NULL));
        MUST(device_clear(a, bytes));
        MUST(device_write(a, host, bytes));
        MUST(device_read(back, a, bytes));
        cr_expect_arr_eq(back, host, bytes);
        cr_expect_eq(((int *)pinned)[0] != 0, lent > 0, "%d", lent);
    }
    device_give_pinned(pinned, DEVICE_STAGING_BYTES);
    device_give(a, bytes);
    free(host);
    free(back);
}

Test(device_cuda, pinned_memory_is_clear_and_exact)
{
    size_t bytes = 3 * 4096 + 12;
    void *host, *a;
    MUST(device_take_pinned(bytes, &host));
    cr_expect_eq((uintptr_t)host % 4096, 0u);
    for (size_t i = 0; i < bytes; i++)
        cr_assert_eq(((char *)host)[i], 0);
    MUST(device_take(bytes, &a));
    memset(host, 3, bytes);
    MUST(stream_copy(NULL, a, host, bytes));
    MUST(device_finish());
    memset(host, 0, bytes);
    MUST(device_read(host, a, bytes));
    cr_expect_eq(((char *)host)[bytes - 1], 3);
    device_give(a, bytes);
    device_give_pinned(host, bytes);
}
