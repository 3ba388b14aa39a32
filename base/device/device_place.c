/* device_place.c - which of a host's GPUs a rank takes. */
#include "base/device/device.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 1024 }; /* a number beyond it is a mistake */

static bool is_auto(const char *gpus)
{
    return !gpus || strcmp(gpus, "auto") == 0;
}

/* The numbers of a list "2,0"; returns how many; 0: not such a list. */
static int parse_gpus(const char *list, int gpus[GPUS_MAX])
{
    for (int count = 0; count < GPUS_MAX; count++) {
        char *end;
        long gpu = isdigit((unsigned char)*list) ? strtol(list, &end, 10) : -1;
        if (gpu < 0 || gpu > GPUS_MAX || (*end && *end != ','))
            return 0;
        gpus[count] = (int)gpu;
        if (!*end)
            return count + 1;
        list = end + 1;
    }
    return 0;
}

bool device_gpus_are_valid(const char *gpus)
{
    int numbers[GPUS_MAX];
    return is_auto(gpus) || parse_gpus(gpus, numbers) > 0;
}

enum zd_status device_place(
        const struct device_options *options, int local_rank, int *place_out)
{
    int gpus[GPUS_MAX], there = device_gpu_count(NULL);
    *place_out = local_rank;
    if (is_auto(options->gpus) ||
        device_resolve(options->backend) == DEVICE_CPU)
        return ZD_OK;
    int count = parse_gpus(options->gpus, gpus);
    int gpu = count > 0 ? gpus[local_rank % count] : -1;
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
    int gpus[GPUS_MAX], places = 0;
    if (is_auto(options->gpus))
        return device_gpu_count(NULL);
    int count = parse_gpus(options->gpus, gpus);
    for (int i = 0; i < count; i++) {
        int first = 0;
        while (gpus[first] != gpus[i])
            first++;
        places += first == i;
    }
    return places;
}
