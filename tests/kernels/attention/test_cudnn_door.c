/* test_cudnn_door.c - handling of cuDNN's results, which come from a stand-in
 * for its headers: a graph is built once per shape; an unsupported one is
 * declined and reported once; a failure at run time is an error. */
#include "kernels/attention/cudnn_door.h"

#include "base/device/device_cuda.h"
#include "base/library.h"
#include "tests/base/device/gpu_case.h"
#include "tests/cuda/cudnn/cudnn_standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnn_standin cudnn_standin;

enum { B = 2, T = 8, H = 2, D = 8, COUNT = B * T * H * D };

static struct device *device;
static void *out;
static struct attention_shape shape = {
        .B = B,
        .T = T,
        .H = H,
        .KV = H,
        .D = D,
        .q_stride = H * D,
        .k_stride = H * D,
        .v_stride = H * D,
        .scale = 0.3f};

static bool opens(char *why, size_t why_bytes)
{
    const char *name = NULL;
    int version = 0;
    bool is_open = cudnn_open(&name, &version, why, why_bytes);
    cr_expect(!is_open || strcmp(name, "cuDNN 9.19") == 0);
    cr_expect(!is_open || version == 91900);
    return is_open;
}

static void begin(void)
{
    setenv("ZEROD_CUDNN", "libm.so.6", 1); /* any library: no symbol is looked
                                              up in it */
    cudnn_standin = (struct cudnn_standin){.version = 91900, .workspace = 100};
    device = gpu_case_open();
    MUST(device_take(2 * COUNT, &out));
}

static void end(void)
{
    device_give(out, 2 * COUNT);
    device_close(device);
}

TestSuite(cudnn_door, .init = begin, .fini = end);

static enum zd_status run(
        bool is_backward, bool *done_out, const char **why_out)
{
    struct cudnn_attention a = {
            .of = {.shape = &shape, .out = out, .dq = is_backward ? out : NULL},
            .dtype = DTYPE_BF16,
            .workspace_bytes = 100,
            .deterministic = true};
    enum cudnn_outcome outcome;
    enum zd_status status = cudnn_attention_run(
            device_cuda_stream(NULL), &a, &outcome, why_out);
    *done_out = outcome != CUDNN_DECLINED;
    return status;
}

static void open_one(void)
{
    char why[256] = "";
    cr_assert(opens(why, sizeof why), "%s", why);
}

Test(cudnn_door, graph_is_built_once_per_shape)
{
    bool done = false;
    const char *why;
    uint16_t ones[COUNT], now[COUNT];
    memset(ones, 1, sizeof ones);
    MUST(device_write(out, ones, sizeof ones));
    open_one();
    for (int i = 0; i < 2; i++) {
        MUST(run(false, &done, &why));
        cr_expect(done);
        cr_expect_null(why);
    }
    cr_expect_eq(cudnn_standin.built, 1);
    cr_expect_eq(cudnn_standin.executed, 2);
    MUST(device_read(now, out, sizeof now));
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(now[i], 0, "it ran on the device's memory");
    MUST(run(true, &done, &why));
    cr_expect(done);
    cr_expect_eq(cudnn_standin.built, 2);
    cr_expect_eq(cudnn_standin.is_backward, 1);
    cr_expect_eq(cudnn_standin.is_deterministic, 1);
}

/* Also checks that nothing was queued. */
static void expect_declined(const char *because)
{
    bool done = true;
    const char *why;
    open_one();
    MUST(run(false, &done, &why));
    cr_expect_not(done);
    cr_assert_not_null(why);
    cr_expect(strstr(why, because), "%s", why);
    MUST(run(false, &done, &why));
    cr_expect_not(done);
    cr_expect_null(why, "it is told once");
    cr_expect_eq(cudnn_standin.executed, 0);
}

Test(cudnn_door, unsupported_graph_is_declined)
{
    cudnn_standin.refuses_graph = "no such head";
    expect_declined("no such head");
}

Test(cudnn_door, headers_that_throw_decline)
{
    cudnn_standin.throws = "no such symbol";
    expect_declined("no such symbol");
}

Test(cudnn_door, too_large_a_workspace_is_declined)
{
    cudnn_standin.workspace = 101;
    expect_declined("101 bytes of work space, there are 100");
}

Test(cudnn_door, failure_of_a_running_graph_is_an_error)
{
    bool done = true;
    const char *why;
    open_one();
    cudnn_standin.fails_to_execute = "CUDNN_STATUS_EXECUTION_FAILED";
    cr_expect_eq(run(false, &done, &why), ZD_ERR_DEVICE);
    cr_expect_not(done);
    cr_expect_str_eq(zd_error_get()->code, "E1223");
    cr_expect(strstr(zd_error_get()->what, "CUDNN_STATUS_EXECUTION_FAILED"));
    zd_error_clear();
}

/* cuDNN opens its compiler by name and finds a library that is already open; we
 * open it from the places of our own search, which dlopen does not know. */
Test(cudnn_door, compiler_is_found_on_the_library_path)
{
    char folder[] = "/tmp/zerod-XXXXXX", command[512], path[256] = "";
    cr_assert(mkdtemp(folder));
    cr_assert(library_path("libm.so", path, sizeof path));
    ZD_PRINT(command, "cp '%s' %s/libnvrtc.so.13", path, folder);
    cr_assert_eq(system(command), 0);
    setenv("ZEROD_LIBRARY_PATH", folder, 1);
    *path = '\0';
    open_one();
    cr_expect(library_path("libnvrtc.so.13", path, sizeof path));
    cr_expect_eq(strncmp(path, folder, strlen(folder)), 0, "%s", path);
    ZD_PRINT(command, "rm -r %s", folder);
    cr_expect_eq(system(command), 0);
}

enum { RUNS = 200 };

static void *run_many(void *ctx)
{
    int *failed = ctx;
    device_use(device);
    for (int i = 0; i < RUNS; i++) {
        bool done = false;
        const char *why;
        if (run(i % 2, &done, &why) != ZD_OK || !done)
            ++*failed;
    }
    device_use(NULL);
    return NULL;
}

/* Ranks that are threads may share a GPU and its handle. */
Test(cudnn_door, threads_take_turns_at_the_handle)
{
    pthread_t threads[2];
    int failed[2] = {0, 0};
    open_one();
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
                pthread_create(&threads[i], NULL, run_many, &failed[i]), 0);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    cr_expect_eq(failed[0] + failed[1], 0);
    cr_expect_eq(cudnn_standin.executed, 2 * RUNS);
    cr_expect_eq(cudnn_standin.built, 2);
    cr_expect_eq(cudnn_standin.overlaps, 0);
}

Test(cudnn_door, old_cudnn_is_refused)
{
    char why[256] = "";
    cudnn_standin.version = 80900;
    cr_expect_not(opens(why, sizeof why));
    cr_expect(strstr(why, "older than 9.0"), "%s", why);
}
