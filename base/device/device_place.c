/* device_place.c - which of a host's GPUs a rank takes. */
#include "base/device/device.h"

#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 1024 }; /* a number beyond it is a mistake */

static bool is_auto(const char *gpus)
{
    return !gpus || strcmp(gpus, "auto") == 0;
}

/* The next number of the list; -1: what is there is none. *list then begins
 * after the comma, or is NULL at the end. */
static int next_gpu(const char **list)
{
    char *end;
    if (**list < '0' || **list > '9')
        return -1;
    long gpu = strtol(*list, &end, 10);
    if ((*end && *end != ',') || gpu > GPUS_MAX)
        return -1;
    *list = *end ? end + 1 : NULL;
    return (int)gpu;
}

/* How many there are; 0: it is no such list. */
static int count_gpus(const char *list)
{
    int count = 0;
    for (; list; count++)
        if (next_gpu(&list) < 0)
            return 0;
    return count;
}

bool device_gpus_are_valid(const char *gpus)
{
    return is_auto(gpus) || count_gpus(gpus) > 0;
}

enum zd_status device_place(
        const struct device_options *options, int local_rank, int *place_out)
{
    const char *list = options->gpus;
    int gpu = -1, there = device_gpu_count(NULL);
    *place_out = local_rank;
    if (is_auto(list) || device_resolve(options->backend) == DEVICE_CPU)
        return ZD_OK;
    int count = count_gpus(list);
    for (int i = 0; count > 0 && i <= local_rank % count; i++)
        gpu = next_gpu(&list);
    if (gpu >= 0 && (gpu < there || there == 0)) { /* 0: device_open says why */
        *place_out = gpu;
        return ZD_OK;
    }
    ZD_FAIL(ZD_ERR_UNFIT, "E1208",
            "device.gpus = \"%s\": there is no GPU %d, this process sees %d",
            options->gpus, gpu, there);
    return zd_fail_help("they are counted from 0, after CUDA_VISIBLE_DEVICES");
}

int device_places(const struct device_options *options)
{
    const char *list = options->gpus;
    uint64_t taken[GPUS_MAX / 64 + 1] = {0};
    int places = 0;
    if (is_auto(list))
        return device_gpu_count(NULL);
    while (list) {
        int gpu = next_gpu(&list);
        if (gpu < 0)
            return 0;
        uint64_t bit = (uint64_t)1 << (gpu % 64);
        places += !(taken[gpu / 64] & bit);
        taken[gpu / 64] |= bit;
    }
    return places;
}
