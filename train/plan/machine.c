/* machine.c - the table of known machines.
 *
 * Products: 0.7 of the dense peak on a GPU (a large product reaches 70 to 80 %
 * of it); in FP8 so many times that as the matmuls in docs/measured/fp8.md, on
 * Ada as its peak. Rows at which they have half of that: as whole trainings
 * lose with small micro-batches, by llm-foundry's tables
 * (scripts/train/benchmarking at 8c8dd48): on the H100 30B models with 3, 10
 * and 14 samples of 2048 tokens (50.8, 57.4, 58.6 % HFU), on the A100 70B with
 * 2 and 8 (64.8, 71.1); the 4090 by its peak. Jitter: torchtitan's 8B on 8 and
 * on 128 GPUs (6667, 6514 tokens/s). tests/train/plan/test_published.c holds
 * the tables themselves. Memory: 0.85 of the peak. Wires: 0.8 of the peak in
 * each direction. Updates on the host are bound by its memory, which the ranks
 * of a node share. */
#include "train/plan/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <string.h>

#define TERA 1e12
#define GIGA 1e9

/* clang-format off */
/* FLOP/s of large matmuls in 16 bits and in fp32, rows at which they have half of that; bytes/s of memory; seconds of a launch; bytes/s
 * of updates on the host, of the link to it, to ranks within a node and between nodes; seconds of latency; jitter; bytes/s of a disk */
#define ALL(rate)                                         {rate, rate, rate, rate, rate, rate}
#define ROW(name, what, m16, m32, half, memory, launch, host, link, inside, between, latency, jitter, disk, ...)                       \
    {name, what, {m16 * TERA, m32 * TERA}, {half, half}, memory * GIGA, ALL(memory * GIGA), ALL(host * GIGA), launch, link * GIGA,     \
     inside * GIGA, between * GIGA, latency, jitter, disk * GIGA, __VA_ARGS__}
static const struct plan_machine machines[] = {
        /* NVIDIA H100 data sheet: 989 TFLOPS bf16 dense, 3.35 TB/s, NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s */
        ROW("h100", "8 x H100 SXM 80 GB, NVLink 4, 400 Gbit/s for each GPU",
            692, 346, 1200, 2850, 40e-6, 40, 50, 360, 40, 10e-6, 0.005, 3, .fp8 = {1.8, 1.35}, .capability = 90),
        /* NVIDIA H200 data sheet: 989 TFLOPS bf16 dense, 4.8 TB/s, NVLink 450 GB/s each way, PCIe 5 x16 64 GB/s */
        ROW("h200", "8 x H200 SXM 141 GB, NVLink 4, 400 Gbit/s for each GPU",
            692, 346, 1200, 4080, 40e-6, 40, 50, 360, 40, 10e-6, 0.005, 3, .fp8 = {1.8, 1.35}, .capability = 90),
        /* NVIDIA A100 data sheet: 312 TFLOPS bf16 dense, 2.04 TB/s, NVLink 300 GB/s each way, PCIe 4 x16 32 GB/s */
        ROW("a100", "8 x A100 SXM 80 GB, NVLink 3, 200 Gbit/s for each GPU",
            218, 109, 550, 1730, 50e-6, 20, 25, 240, 20, 12e-6, 0.005, 3, .capability = 80),
        /* NVIDIA Ada whitepaper: 165 TFLOPS bf16 dense with fp32 sums, 1.01 TB/s, PCIe 4 x16 32 GB/s */
        ROW("4090", "RTX 4090 24 GB, PCIe 4, no NVLink, 10 Gbit/s",
            116, 58, 300, 860, 40e-6, 30, 25, 10, 1, 30e-6, 0.005, 3, .fp8 = {2, 0}, .capability = 89),
        /* measured: matmuls of bf16 2 TFLOPS (1.2 beside other work, 4.1 at most), AdamW 25 GB/s; fp32 so that the quickstart takes the
         * 0.10 s that were measured */
        ROW("amx", "two cores of a Sapphire Rapids server, with AMX",
            2, 0.36, 16, 25, 30e-6, 25, 10, 4, 1, 20e-6, 0, 1, .shares_cores = true, .link_cores = 1, .wire_cores = 1),
        /* a guess: no data sheet says what a job is given of a machine */
        ROW("cpu", "a few cores of a server",
            0.4, 0.15, 16, 15, 30e-6, 15, 10, 4, 1, 20e-6, 0, 1, .shares_cores = true, .link_cores = 1, .wire_cores = 1, .is_guess = true),
};
#undef ROW
#undef ALL
/* clang-format on */
#undef TERA
#undef GIGA

enum { MACHINES = sizeof machines / sizeof machines[0] };

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
