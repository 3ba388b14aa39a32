/* machine.c - the table of known machines.
 *
 * Products: 0.7 of the dense peak on a GPU (a large product reaches 70 to 80 %
 * of it). Rows at which they have half of that: as whole trainings lose with
 * small micro-batches, by llm-foundry's tables (scripts/train/benchmarking at
 * 8c8dd48): on the H100 30B models with 3, 10 and 14 samples of 2048 tokens
 * (50.8, 57.4, 58.6 % HFU), on the A100 70B with 2 and 8 (64.8, 71.1); the 4090
 * by its peak. Jitter: torchtitan's 8B on 8 and on 128 GPUs (6667, 6514
 * tokens/s). tests/train/plan/test_published.c holds the tables themselves. Memory: 0.85 of the peak. Wires: 0.8 of the peak in each direction.
 * Updates on the host are bound by its memory, which the ranks of a node
 * share. */
#include "train/plan/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <string.h>

#define TERA 1e12
#define GIGA 1e9

static const struct plan_machine machines[] = {
        {.name = "h100",
         .what = "8 x H100 SXM 80 GB, NVLink 4, 400 Gbit/s for each GPU",
         .source = "NVIDIA H100 data sheet: 989 TFLOPS bf16 dense, 3.35 TB/s, "
                   "NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s",
         .products_16 = 692 * TERA,
         .products_32 = 346 * TERA,
         .half_tokens = 1200,
         .memory = 2850 * GIGA,
         .launch = 40e-6,
         .host = 40 * GIGA,
         .link = 50 * GIGA,
         .inside = 360 * GIGA,
         .between = 40 * GIGA,
         .latency = 10e-6,
         .jitter = 0.005,
         .disk = 3 * GIGA},
        {.name = "h200",
         .what = "8 x H200 SXM 141 GB, NVLink 4, 400 Gbit/s for each GPU",
         .source = "NVIDIA H200 data sheet: 989 TFLOPS bf16 dense, 4.8 TB/s, "
                   "NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s",
         .products_16 = 692 * TERA,
         .products_32 = 346 * TERA,
         .half_tokens = 1200,
         .memory = 4080 * GIGA,
         .launch = 40e-6,
         .host = 40 * GIGA,
         .link = 50 * GIGA,
         .inside = 360 * GIGA,
         .between = 40 * GIGA,
         .latency = 10e-6,
         .jitter = 0.005,
         .disk = 3 * GIGA},
        {.name = "a100",
         .what = "8 x A100 SXM 80 GB, NVLink 3, 200 Gbit/s for each GPU",
         .source = "NVIDIA A100 data sheet: 312 TFLOPS bf16 dense, 2.04 TB/s, "
                   "NVLink 300 GB/s each way, PCIe 4 x16 32 GB/s",
         .products_16 = 218 * TERA,
         .products_32 = 109 * TERA,
         .half_tokens = 550,
         .memory = 1730 * GIGA,
         .launch = 50e-6,
         .host = 20 * GIGA,
         .link = 25 * GIGA,
         .inside = 240 * GIGA,
         .between = 20 * GIGA,
         .latency = 12e-6,
         .jitter = 0.005,
         .disk = 3 * GIGA},
        {.name = "4090",
         .what = "RTX 4090 24 GB, PCIe 4, no NVLink, 10 Gbit/s",
         .source = "NVIDIA Ada whitepaper: 165 TFLOPS bf16 dense with fp32 "
                   "sums, 1.01 TB/s, PCIe 4 x16 32 GB/s",
         .products_16 = 116 * TERA,
         .products_32 = 58 * TERA,
         .half_tokens = 300,
         .memory = 860 * GIGA,
         .launch = 40e-6,
         .host = 30 * GIGA,
         .link = 25 * GIGA,
         .inside = 10 * GIGA,
         .between = 1 * GIGA,
         .latency = 30e-6,
         .jitter = 0.005,
         .disk = 3 * GIGA},
        {.name = "amx",
         .what = "two cores of a Sapphire Rapids server, with AMX",
         .source = "two cores of such a server: products of bf16 2 TFLOPS (1.2 "
                   "beside other work, 4.1 at most), AdamW 25 GB/s; fp32 so "
                   "that the quickstart takes the 0.10 s that were measured",
         .products_16 = 2 * TERA,
         .products_32 = 0.36 * TERA,
         .half_tokens = 16,
         .memory = 25 * GIGA,
         .launch = 30e-6,
         .host = 25 * GIGA,
         .link = 10 * GIGA,
         .inside = 4 * GIGA,
         .between = 1 * GIGA,
         .latency = 20e-6,
         .disk = 1 * GIGA,
         .shares_cores = true},
        {.name = "cpu",
         .what = "a few cores of a server",
         .source = "a guess: no data sheet says what a job is given of a "
                   "machine",
         .products_16 = 0.4 * TERA,
         .products_32 = 0.15 * TERA,
         .half_tokens = 16,
         .memory = 15 * GIGA,
         .launch = 30e-6,
         .host = 15 * GIGA,
         .link = 10 * GIGA,
         .inside = 4 * GIGA,
         .between = 1 * GIGA,
         .latency = 20e-6,
         .disk = 1 * GIGA,
         .shares_cores = true,
         .is_guess = true},
};
#undef TERA
#undef GIGA

const int plan_rate_tokens[RATE_TOKENS] = {32, 128, 512, 2048};
const int plan_rate_widths[RATE_WIDTHS] = {64, 256, 960, 3840};
const int plan_rate_lengths[RATE_LENGTHS] = {64, 256, 1024};

enum { MACHINES = sizeof machines / sizeof machines[0] };

const struct plan_machine *plan_machine_at(int index)
{
    return index >= 0 && index < MACHINES ? &machines[index] : NULL;
}

const struct plan_machine *plan_machine_find(const char *name)
{
    for (int i = 0; i < MACHINES; i++)
        if (!strcmp(machines[i].name, name))
            return &machines[i];
    return NULL;
}

const char plan_guess_words[] =
        "unknown processor: within a factor of 3; `zerod bench calibrate` "
        "measures it";

int plan_machine_digits(const struct plan_machine *machine)
{
    return machine->is_guess ? 1 : 3;
}

static bool has_amx_bf16(void)
{
    bool has = false;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22);
#endif
    return has;
}

const struct plan_machine *plan_machine_default(enum device_backend backend)
{
    if (backend == DEVICE_CUDA)
        return plan_machine_find("h100");
    return plan_machine_find(has_amx_bf16() ? "amx" : "cpu");
}
