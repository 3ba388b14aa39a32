/* test_matmul_timing.c - how algorithms of matmuls on a GPU are timed, chosen
 * and remembered, checked by the calls to the stand-in for cuBLASLt. */
#include "matmul_cases.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "kernels/matmul/matmul_cuda.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Runs matmuls of several kinds, twice each, like gradients: overwriting, then
 * accumulating. Returns how many. */
static int several_matmuls(void)
{
    for (int i = 0; i < 2; i++) {
        int adds = i ? ADDS : 0;
        check_shape(DTYPE_FP32, 96, 64, 128, TRANS_B | adds, MATMUL_PLAIN);
        check_shape(
                DTYPE_BF16, 96, 64, 128, TRANS_B | NARROW | BIAS, MATMUL_PLAIN);
        check_shape(DTYPE_FP16, 96, 64, 128, TRANS_A | adds, MATMUL_PLAIN);
        check_shape(DTYPE_BF16, 64, 32, 96, TRANS_A | adds, MATMUL_SUM_A);
        check_shape(
                DTYPE_BF16, 64, 32, 96, NARROW | TRANS_B | BIAS, MATMUL_GELU);
    }
    return 10;
}

static void begin_timed(void)
{
    gpu_begin();
    setenv("ZEROD_MATMUL_TIMING", "all", 1);
    if (!is_standin())
        cr_skip("not the stand-in");
    let_fail(NULL);
}

/* The first file of the cache with this suffix; "": none. */
static const char *tuning_file(const char *end)
{
    static char path[PATH_MAX];
    char folder[PATH_MAX];
    ZD_PRINT(folder, "%s/zerod", gpu_cache());
    DIR *dir = opendir(folder);
    *path = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        size_t length = strlen(entry->d_name), tail = strlen(end);
        if (length > tail && strcmp(entry->d_name + length - tail, end) == 0)
            fs_join(path, sizeof path, folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return path;
}

TestSuite(matmul_timing, .init = begin_timed, .fini = gpu_end);

Test(matmul_timing, a_second_start_times_nothing)
{
    several_matmuls();
    struct matmul_counters first = matmul_counters();
    struct cublaslt_standin_counters then = asked();
    /* with the plans of what GELU and the gradients were measured against */
    cr_assert_eq(first.plans, 7);
    cr_assert_eq(first.timed, first.plans);
    cr_assert_gt(then.products, 50);
    /* neither the reduction in place nor TF32 was even tried */
    cr_assert_eq(then.of_algorithm[4], 0);
    cr_assert_eq(then.of_algorithm[5], 0);
    cr_assert_gt(then.of_algorithm[3], 0);
    cr_assert(*tuning_file(".txt"));

    matmul_cuda_close(); /* as a new process */
    let_fail(NULL);
    int count = several_matmuls();
    struct matmul_counters second = matmul_counters();
    cr_assert_geq(second.plans - first.plans, 5);
    cr_assert_eq(second.read, second.plans - first.plans);
    cr_assert_eq(second.timed, first.timed);
    cr_assert_eq(asked().heuristics, 0);
    cr_assert_eq(asked().products, count);
}

/* A checkpoint has the algorithms: a resumed run uses them without the file,
 * even if timing would choose others. Also for a matmul whose first call
 * accumulated. */
Test(matmul_timing, resumed_run_keeps_its_algorithms)
{
    check_shape(DTYPE_FP32, 32, 64, 128, TRANS_B | ADDS, MATMUL_PLAIN);
    several_matmuls();
    let_fail(NULL);
    several_matmuls();
    struct cublaslt_standin_counters was = asked();
    ZD_FREED char *text = matmul_algorithms();
    cr_assert(text);
    matmul_cuda_close();
    cr_assert_eq(unlink(tuning_file(".txt")), 0);
    let_fail("slow_epilogue,slow_plain");
    cr_assert_null(matmul_take_algorithms(text));
    struct matmul_counters then = matmul_counters();
    several_matmuls();
    check_shape(DTYPE_FP32, 32, 64, 128, TRANS_B | ADDS, MATMUL_PLAIN);
    cr_expect_eq(matmul_counters().timed, then.timed);
    cr_expect_eq(asked().heuristics, 0);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(
                asked().of_algorithm[i] - (i == 1), was.of_algorithm[i], "%d",
                i);
    cr_expect_str_eq(
            matmul_take_algorithms("zerod products 1\n"),
            "it has another format");
}

/* Few operations, but a matrix of 16 MiB. */
Test(matmul_timing, a_short_side_is_timed_by_its_bytes)
{
    setenv("ZEROD_MATMUL_TIMING", "on", 1);
    check_shape(DTYPE_FP32, 96, 64, 128, TRANS_B, MATMUL_PLAIN);
    cr_assert_eq(matmul_counters().timed, 0);
    check_shape(DTYPE_FP32, 2048, 2, 2048, TRANS_B, MATMUL_PLAIN);
    cr_assert_eq(matmul_counters().timed, 1);
}

/* For operations other than matmuls: the time of each way; < 0: refused. */
struct two_times {
    int milliseconds[2];
    int *runs;
};

static enum zd_status take_time(const void *work, int way, bool *refused_out)
{
    const struct two_times *times = work;
    ++*times->runs;
    *refused_out = times->milliseconds[way] < 0;
    if (!*refused_out)
        usleep(1000 * (useconds_t)times->milliseconds[way]);
    return ZD_OK;
}

/* The chosen way of a key, and the number of runs. */
static int way_of(int key, int first, int second, int *runs_out)
{
    int way = -1;
    struct two_times times = {{first, second}, runs_out};
    struct two_ways ways = {
            {.m = key, .epilogue = KEY_ATTENTION_FORWARD}, take_time, &times};
    *runs_out = 0;
    MUST(matmul_choose_way(NULL, &ways, &way));
    return way;
}

/* Stored like algorithms: in the process, in the file, for a resumed run. If a
 * way is refused, only the next run asks again. */
Test(matmul_timing, the_faster_of_two_ways_is_kept)
{
    int runs;
    char *text = NULL;
    for (int start = 0; start < 3; start++) {
        cr_expect_eq(way_of(1, 20, 0, &runs), 1);
        cr_expect_eq(runs > 0, start == 0);
        cr_expect_eq(way_of(2, 0, 20, &runs), 0);
        cr_expect_eq(runs > 0, start == 0);
        for (int call = 0; call < 2; call++) {
            cr_expect_eq(way_of(3, 0, -1, &runs), 0);
            cr_expect_eq(runs > 0, call == 0 && start < 2);
        }
        if (start == 1) {
            text = matmul_algorithms();
            cr_assert_eq(unlink(tuning_file(".txt")), 0);
        }
        matmul_cuda_close(); /* as a new process */
        let_fail(NULL);
        if (start == 1)
            cr_assert_null(matmul_take_algorithms(text));
    }
    free(text);
    setenv("ZEROD_MATMUL_TIMING", "off", 1);
    cr_expect_eq(way_of(1, 20, 0, &runs), 0);
    cr_expect_eq(runs, 0);
}

/* A trial would overwrite the sum. */
Test(matmul_timing, first_call_that_accumulates_is_not_timed)
{
    check_shape(DTYPE_FP32, 96, 64, 128, TRANS_B | ADDS, MATMUL_PLAIN);
    cr_assert_eq(matmul_counters().plans, 1);
    cr_assert_eq(matmul_counters().timed, 0);
    cr_assert_eq(asked().products, 1);
}

static void fused_matmuls(void)
{
    check_shape(DTYPE_BF16, 64, 32, 96, NARROW | TRANS_B | BIAS, MATMUL_GELU);
    check_shape(DTYPE_BF16, 64, 32, 96, NARROW | TRANS_B, MATMUL_DGELU);
    check_shape(DTYPE_BF16, 64, 32, 96, TRANS_A, MATMUL_SUM_A);
    check_shape(DTYPE_BF16, 64, 32, 96, TRANS_A | ADDS, MATMUL_SUM_A);
}

/* How many of the four are fused from now on. */
static uint64_t fused_from_now_on(const char *slow)
{
    let_fail(slow);
    fused_matmuls();
    let_fail(NULL);
    fused_matmuls();
    uint64_t fused = asked().with_epilogue;
    matmul_cuda_close(); /* the file says the same, and nothing is timed again
                          */
    let_fail(NULL);
    fused_matmuls();
    cr_assert_eq(asked().products, 4);
    cr_assert_eq(asked().heuristics, 0);
    /* the bias of the first product, when that is apart */
    cr_assert_eq(asked().with_epilogue, fused);
    return fused;
}

Test(matmul_timing, slow_epilogue_is_split)
{
    cr_assert_eq(fused_from_now_on("slow_epilogue"), 1);
}

Test(matmul_timing, fast_epilogue_is_kept)
{
    cr_assert_eq(fused_from_now_on("slow_plain"), 4);
}

Test(matmul_timing, without_timing_the_first_algorithm_is_taken)
{
    setenv("ZEROD_MATMUL_TIMING", "off", 1);
    int count = several_matmuls();
    cr_assert_eq(matmul_counters().timed, 0);
    cr_assert_eq(asked().products, count);
    cr_assert_eq(asked().of_algorithm[1], count);
    cr_assert_str_eq(tuning_file(".txt"), "");
    matmul_cuda_close();
    let_fail(NULL);
    setenv("ZEROD_MATMUL_TIMING", "all", 1);
    several_matmuls();
    cr_assert_gt(matmul_counters().timed, 0);
}

Test(matmul_timing, small_matmuls_are_not_timed)
{
    setenv("ZEROD_MATMUL_TIMING", "on", 1);
    int count = several_matmuls();
    cr_assert_eq(asked().products, count);
    cr_assert_eq(matmul_counters().timed, 0);
}

static void damage(const char *path, long from_end, char byte)
{
    FILE *file = fopen(path, "r+");
    cr_assert(file);
    fseek(file, from_end, SEEK_END);
    fputc(byte, file);
    fclose(file);
}

Test(matmul_timing, damaged_file_is_replaced)
{
    several_matmuls();
    uint64_t timed = matmul_counters().timed;
    damage(tuning_file(".txt"), -20, 'x');
    matmul_cuda_close();
    several_matmuls();
    cr_assert_eq(matmul_counters().timed, 2 * timed);
    cr_assert_eq(matmul_counters().read, 0, "%d", (int)timed);
    matmul_cuda_close();
    several_matmuls();
    cr_assert_eq(matmul_counters().timed, 2 * timed);
}

Test(matmul_timing, unwritable_cache_is_not_an_error)
{
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    int count = several_matmuls();
    cr_assert_gt(asked().products, count);
    MUST(zd_error_get()->status);
}
