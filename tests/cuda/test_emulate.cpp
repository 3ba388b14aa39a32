/* test_emulate.cpp - the emulator of kernels itself: what no kernel of ours,
 * which are all compared with the CPU, would tell. */
#include "tests/cuda/emulate_case.h"

namespace
{
enum { BLOCKS = 7 };

void read_floats(float *host, const float *device, int count)
{
    OK(cudaMemcpy(host, device, (size_t)count * 4, cudaMemcpyDeviceToHost));
}

/* What stands in cuda.cuh's reductions for their shuffles. */
__global__ void butterflies(int *differ)
{
    float x = (float)(threadIdx.x * 37 % 64) * 0.1f - 3.0f;
    for (int lanes = 1; lanes <= 32; lanes *= 2) {
        float sum = x, most = x;
        for (int offset = lanes / 2; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, offset));
        }
        if (sum != zd_emulate_sum(x, lanes) || most != zd_emulate_max(x, lanes))
            *differ = lanes;
    }
}

Test(cuda_emulate, sums_of_lanes_have_the_bits_of_shuffles)
{
    int *differ, where = 1;
    cudaMalloc((void **)&differ, sizeof *differ);
    cudaMemset(differ, 0, sizeof *differ);
    zd_emulate_launch("butterflies", butterflies, 1, 64, 0, 0, differ);
    OK(cudaMemcpy(&where, differ, sizeof where, cudaMemcpyDefault));
    cr_expect_eq(where, 0);
}

template <typename T> __global__ void poisoned(T *nans)
{
    __shared__ float a[64];
    __shared__ T b[2];
    nans[threadIdx.x] = (T)(a[threadIdx.x] != a[threadIdx.x]) + (b[1] != b[1]);
    __syncthreads();
    a[threadIdx.x] = b[threadIdx.x % 2] = 0;
}

Test(cuda_emulate, static_shared_memory_is_poisoned)
{
    float *out = device_floats(64), host[64];
    for (int round = 0; round < 2; round++) {
        zd_emulate_launch("poisoned", poisoned<float>, 3, 64, 0, 0, out);
        read_floats(host, out, 64);
        for (int i = 0; i < 64; i++)
            cr_expect_eq(host[i], 2);
    }
    struct cudaFuncAttributes attributes;
    cudaFuncGetAttributes(&attributes, (const void *)poisoned<float>);
    cr_expect_eq(attributes.sharedSizeBytes, 64 * 4 + 2 * 4);
}

struct pointers {
    int count;
    float *out;
    const float *in;
};

__global__ void copy_if_counted(struct pointers p, int count)
{
    if (p.count == count)
        p.out[threadIdx.x] = p.in[threadIdx.x];
}

/* A member's value is what it is, whatever was there before it. */
Test(cuda_emulate, bytes_between_members_are_no_address)
{
    setenv("ZD_STANDIN_GPUS", "2", 1);
    enum { COUNT = 32 };
    float *in = device_floats(COUNT), *out = device_floats(COUNT), host[COUNT];
    float *others = nullptr;
    cudaMemset(out, 0, sizeof host);
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&others, 4));
    OK(cudaSetDevice(0));
    struct pointers p;
    memcpy((void *)&p, &others, sizeof others);
    int before = p.count;
    p.out = out;
    p.in = in;
    zd_emulate_launch("copy", copy_if_counted, 1, COUNT, 0, 0, p, before);
    read_floats(host, out, COUNT);
    for (int i = 0; i < COUNT; i++)
        cr_expect_eq(host[i], (float)i);
}

struct listed {
    struct {
        bool is_there;
        struct {
            int64_t begin, end;
        } parts[8];
    } list;
    float *out;
    float value;
    bool last;
};

__global__ void sum_listed(struct listed l)
{
    int64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += l.list.parts[i].begin + l.list.parts[i].end;
    l.out[threadIdx.x] = (float)sum + l.value;
}

/* No member is taken for what lies between members. */
Test(cuda_emulate, members_beside_an_array_of_structs_stay)
{
    float *out = device_floats(32), host[32];
    struct listed l = {};
    l.out = out;
    l.value = 0.5f;
    for (int i = 0; i < 8; i++)
        l.list.parts[i].begin = l.list.parts[i].end = -1 - i;
    zd_emulate_launch("sum", sum_listed, 1, 32, 0, 0, l);
    read_floats(host, out, 32);
    for (int i = 0; i < 32; i++)
        cr_expect_eq(host[i], -71.5f);
}

/* --- the order of blocks -------------------------------------------------- */

__global__ void take_numbers(int *counter, int *turn_of)
{
    turn_of[blockIdx.x] = atomicAdd(counter, 1);
}

void read_turns(int turns[BLOCKS])
{
    int *counter, *turn_of;
    cudaMalloc((void **)&counter, 4);
    cudaMalloc((void **)&turn_of, BLOCKS * 4);
    cudaMemset(counter, 0, 4);
    zd_emulate_launch("turns", take_numbers, BLOCKS, 1, 0, 0, counter, turn_of);
    cudaMemcpy(turns, turn_of, BLOCKS * 4, cudaMemcpyDefault);
}

Test(cuda_emulate, blocks_run_in_another_order_when_asked)
{
    setenv("ZD_STANDIN_ORDER", "reverse", 1);
    int turns[BLOCKS];
    read_turns(turns);
    for (int i = 0; i < BLOCKS; i++)
        cr_expect_eq(turns[i], BLOCKS - 1 - i);
}

Test(cuda_emulate, blocks_run_in_a_permuted_order_when_asked)
{
    setenv("ZD_STANDIN_ORDER", "3", 1);
    int turns[BLOCKS], seen = 0;
    bool in_order = true;
    read_turns(turns);
    for (int i = 0; i < BLOCKS; i++) {
        seen |= 1 << turns[i];
        in_order = in_order && turns[i] == i;
    }
    cr_expect_eq(seen, (1 << BLOCKS) - 1);
    cr_expect(!in_order);
}

} // namespace
