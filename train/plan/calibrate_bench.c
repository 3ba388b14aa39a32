/* calibrate_bench.c - how long an operation of a calibration takes, and places
 * for it to work on. */
#include "base/clock.h"
#include "base/device/device_memory.h"
#include "train/plan/calibrate.h"

#include <math.h>

enum zd_status bench_time(
        struct bench *bench, bench_fn *run, double *seconds_out)
{
    double all = 0, runs = 0;
    int times = 1;
    ZD_TRY(run(bench)); /* touches what it needs */
    ZD_TRY(device_finish());
    do {
        double began = clock_seconds();
        for (int i = 0; i < times; i++)
            ZD_TRY(run(bench));
        ZD_TRY(device_finish());
        double took = clock_seconds() - began;
        all += took;
        runs += times;
        if (took < bench->share / 16 && times < 1 << 16)
            times *= 2;
    } while (all < bench->share);
    *seconds_out = all / runs;
    return ZD_OK;
}

enum zd_status bench_rate(
        struct bench *bench, bench_fn *run, double much, double *rate_out)
{
    double seconds;
    ZD_TRY(bench_time(bench, run, &seconds));
    if (seconds > 0)
        *rate_out = fmax(*rate_out, much / seconds);
    return ZD_OK;
}

char *bench_cold(const struct bench *b, char *array, int blocks, size_t bytes)
{
    size_t places = (size_t)blocks * BENCH_BLOCK / bytes;
    return array + (places ? b->turns % places : 0) * bytes;
}
