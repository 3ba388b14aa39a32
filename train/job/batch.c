/* batch.c - the three batch sizes and each rank's share of a step. */
#include "train/job/options.h"

#include <stdio.h>

/* The multiple of `unit` nearest to `wanted`, at least one unit. */
static int64_t nearest_multiple(int64_t wanted, int64_t unit)
{
    int64_t below = wanted / unit * unit;
    int64_t above = below + unit;
    if (below < unit)
        return above;
    return wanted - below <= above - wanted ? below : above;
}

static enum zd_status fail_divide(
        int64_t global, int64_t unit, const char *of_rank, int ranks,
        int sharers)
{
    char shared[64] = "";
    if (sharers > 1)
        ZD_PRINT(shared, " / %d of cp_size x tp_size", sharers);
    ZD_FAIL(ZD_ERR_CONFIG, "E0211",
            "train.global_batch_size = %lld is not a multiple of %lld "
            "(%s%d rank%s%s)",
            (long long)global, (long long)unit, of_rank, ranks,
            ranks == 1 ? "" : "s", shared);
    return zd_fail_help(
            "the nearest that is: train.global_batch_size = %lld",
            (long long)nearest_multiple(global, unit));
}

enum zd_status train_resolve_batch(
        const struct train_options *options, int samplers, int sharers,
        int *per_device_out, int *accumulation_out, int64_t *global_out)
{
    int ranks = samplers * sharers;
    int64_t N = samplers;
    int64_t G = options->global_batch_size;
    int64_t B = options->per_device_train_batch_size;
    int64_t A = options->gradient_accumulation_steps;

    if (G && B && A && B * A * N != G) {
        ZD_FAIL(ZD_ERR_CONFIG, "E0211",
                "batch sizes do not agree: %lld x %lld x %lld %s = "
                "%lld, not %lld",
                (long long)B, (long long)A, (long long)N,
                sharers == 1 ? "ranks" : "groups of ranks",
                (long long)(B * A * N), (long long)G);
        return zd_fail_help(
                "remove one of the three, or set "
                "train.global_batch_size = %lld",
                (long long)(B * A * N));
    }
    if (!A && !(G && B))
        A = 1;
    if (!G && !B)
        B = 4;
    if (G && G % ((B ? B : A) * N))
        return fail_divide(
                G, (B ? B : A) * N,
                B       ? "per_device_train_batch_size x "
                : A > 1 ? "gradient_accumulation_steps x "
                        : "",
                ranks, sharers);
    A = A ? A : G / (B * N);
    B = B ? B : G / (A * N);
    G = B * A * N;
    if (B > INT32_MAX || A > INT32_MAX)
        return ZD_FAIL(
                ZD_ERR_CONFIG, "E0211",
                "a batch of %lld x %lld samples per rank is too large",
                (long long)B, (long long)A);
    *per_device_out = (int)B;
    *accumulation_out = (int)A;
    *global_out = G;
    return ZD_OK;
}
