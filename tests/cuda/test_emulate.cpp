/* test_emulate.cpp - the emulator of kernels itself: what it computes. */
#include "tests/cuda/emulate_case.h"

namespace
{
enum { N = 10000, BLOCKS = 7 };

void read_floats(float *host, const float *device, int count)
{
    cr_assert_eq(
            cudaMemcpy(host, device, (size_t)count * 4, cudaMemcpyDeviceToHost),
            cudaSuccess);
}

/* --- what is computed ----------------------------------------------------- */

__global__ void block_sums(float *out, const float *in, int count)
{
    __shared__ float parts[32];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset; offset /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 64; half; half /= 2) {
        if (threadIdx.x < half)
            parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = parts[0];
}

Test(cuda_emulate, reduces_with_shuffles_and_barriers)
{
    float *in = device_floats(N), *out = device_floats(BLOCKS), sums[BLOCKS];
    cr_assert_eq(
            zd_emulate_launch(
                    "sums", block_sums, BLOCKS, 256, 0, 0, out, in, (int)N),
            cudaSuccess);
    read_floats(sums, out, BLOCKS);
    double sum = 0;
    for (int i = 0; i < BLOCKS; i++)
        sum += sums[i];
    cr_expect_eq(sum, N * (N - 1.0) / 2);
}

__global__ void every_shuffle(int *out)
{
    int lane = (int)threadIdx.x % 32, *o = out + threadIdx.x * 4;
    o[0] = __shfl_sync(0xffffffffu, lane * 3, 5);
    o[1] = __shfl_sync(0xffffffffu, lane, 3, 8);
    o[2] = __shfl_xor_sync(0xffffffffu, lane, 4, 16);
    if (lane < 12)
        o[3] = __shfl_xor_sync(0xfffu, lane, 1);
    else
        o[3] = __shfl_xor_sync(0xfffff000u, lane + 100, 1);
}

Test(cuda_emulate, shuffles_as_the_manual_says)
{
    enum { THREADS = 64 };
    int *out, host[THREADS * 4];
    cudaMalloc((void **)&out, sizeof host);
    zd_emulate_launch("shuffles", every_shuffle, 1, THREADS, 0, 0, out);
    cr_assert_eq(
            cudaMemcpy(host, out, sizeof host, cudaMemcpyDefault), cudaSuccess);
    for (int t = 0; t < THREADS; t++) {
        int lane = t % 32, *o = host + t * 4;
        cr_expect_eq(o[0], 15);
        cr_expect_eq(o[1], lane / 8 * 8 + 3);
        cr_expect_eq(o[2], lane ^ 4);
        cr_expect_eq(o[3], lane < 12 ? lane ^ 1 : (lane ^ 1) + 100);
    }
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
    cr_assert_eq(
            cudaMemcpy(&where, differ, sizeof where, cudaMemcpyDefault),
            cudaSuccess);
    cr_expect_eq(where, 0);
}

struct pointers {
    int count;
    float *out;
    const float *in;
};

__global__ void reverse(struct pointers p, float add)
{
    float *shared = reinterpret_cast<float *>(zd_emulate_shared);
    int i = (int)(threadIdx.x + threadIdx.y * blockDim.x);
    bool was_nan = shared[i] != shared[i];
    __syncthreads();
    shared[i] = p.in[i];
    __syncthreads();
    p.out[i] = shared[p.count - 1 - i] + (was_nan ? add : 0.0f);
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

Test(cuda_emulate, structs_carry_addresses_and_shared_memory_is_poisoned)
{
    enum { COUNT = 96 };
    float *in = device_floats(COUNT), *out = device_floats(COUNT), host[COUNT];
    struct pointers p = {COUNT, out, in};
    for (int round = 0; round < 2; round++) {
        zd_emulate_launch(
                "reverse", reverse, 1, dim3(32, 3), COUNT * 4, 0, p, 0.5f);
        read_floats(host, out, COUNT);
        for (int i = 0; i < COUNT; i++)
            cr_expect_eq(host[i], (float)(COUNT - 1 - i) + 0.5f);
    }
}

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
    cr_assert_eq(cudaSetDevice(1), cudaSuccess);
    cr_assert_eq(cudaMalloc((void **)&others, 4), cudaSuccess);
    cr_assert_eq(cudaSetDevice(0), cudaSuccess);
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

struct totals {
    int threads;
    unsigned largest;
    float sum;
};

__global__ void count_up(struct totals *totals)
{
    atomicAdd(&totals->threads, 1);
    atomicMax(&totals->largest, blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&totals->sum, 0.5f);
}

Test(cuda_emulate, atomics_of_all_threads)
{
    struct totals *totals, host = {};
    cudaMalloc((void **)&totals, sizeof host);
    cudaMemset(totals, 0, sizeof host);
    zd_emulate_launch("count", count_up, 10, 100, 0, 0, totals);
    cudaMemcpy(&host, totals, sizeof host, cudaMemcpyDefault);
    cr_expect_eq(host.threads, 1000);
    cr_expect_eq(host.largest, 999u);
    cr_expect_eq(host.sum, 500.0f);
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
