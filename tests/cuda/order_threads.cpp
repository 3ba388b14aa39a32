/* Under a thread sanitizer the stand-in's streams order what CUDA orders and
 * nothing else: programs with a wait too few are found, right ones are clean.
 *   order_threads          runs every case in a process of its own, prints TAP
 *   order_threads CASE     one case; 66 when the sanitizer has found a race */
#include "tests/cuda/emulate.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
enum { COUNT = 4096, ROUNDS = 5, RACE_FOUND = 66 };

__global__ void scale(float *x, float by, int count)
{
    __shared__ float factor;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        factor = by;
    __syncthreads();
    if (i < count)
        x[i] *= __shfl_sync(0xffffffffu, factor, 0);
}

struct program {
    cudaStream_t compute, copies;
    cudaEvent_t computed, copied;
    float *device, *host; /* page-locked */
} p;

void create(void)
{
    cudaStreamCreateWithFlags(&p.compute, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&p.copies, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&p.computed, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&p.copied, cudaEventDisableTiming);
    cudaMalloc((void **)&p.device, COUNT * 4);
    p.host = new float[COUNT];
    cudaHostRegister(p.host, COUNT * 4, cudaHostRegisterDefault);
}

void launch(void)
{
    zd_emulate_launch(
            "scale", scale, COUNT / 128, 128, 0, p.compute, p.device, 2.0f,
            (int)COUNT);
}

/* Values down to the host after each kernel and read there; the next kernel
 * writes what the copy has read. The waits in `leave_out` are missing. */
enum wait { COPY_WAITS = 1, HOST_WAITS = 2, HOST_LATE = 4 };

int rounds(unsigned leave_out)
{
    cudaMemsetAsync(p.device, 0, COUNT * 4, p.compute);
    float sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        cudaStreamWaitEvent(p.compute, p.copied, 0);
        launch();
        cudaEventRecord(p.computed, p.compute);
        if (!(leave_out & COPY_WAITS))
            cudaStreamWaitEvent(p.copies, p.computed, 0);
        cudaMemcpyAsync(
                p.host, p.device, COUNT * 4, cudaMemcpyDeviceToHost, p.copies);
        cudaEventRecord(p.copied, p.copies);
        if (leave_out & HOST_LATE)
            usleep(20000); /* done long ago, and nobody has asked */
        if (!(leave_out & (HOST_WAITS | HOST_LATE)))
            cudaEventSynchronize(p.copied);
        for (int j = 0; j < COUNT; j++)
            sum += p.host[j];
    }
    cudaDeviceSynchronize();
    return sum != 0;
}

/* The host gives a buffer to a stream and writes to it again at once. */
int buffer_is_reused(unsigned)
{
    for (int i = 0; i < ROUNDS; i++) {
        p.host[i] = 1;
        cudaMemcpyAsync(
                p.device, p.host, COUNT * 4, cudaMemcpyHostToDevice, p.copies);
    }
    cudaDeviceSynchronize();
    return 0;
}

/* The same, and kernels are launched and have run meanwhile. */
int buffer_is_reused_late(unsigned)
{
    for (int i = 0; i < ROUNDS; i++) {
        p.host[i] = 1;
        cudaMemcpyAsync(
                p.device, p.host, COUNT * 4, cudaMemcpyHostToDevice, p.compute);
        launch();
        usleep(20000);
        launch();
        zd_standin_is_reachable(p.device, COUNT * 4);
    }
    cudaDeviceSynchronize();
    return 0;
}

/* Two streams write the same memory; a third one waits for both. */
int streams_are_independent(unsigned)
{
    cudaMemsetAsync(p.device, 0, COUNT * 4, p.compute);
    cudaMemsetAsync(p.device, 0, COUNT * 4, p.copies);
    cudaDeviceSynchronize();
    return 0;
}

int query_is_a_wait(unsigned)
{
    cudaMemsetAsync(p.device, 1, COUNT * 4, p.compute);
    cudaMemcpyAsync(
            p.host, p.device, COUNT * 4, cudaMemcpyDeviceToHost, p.compute);
    cudaEventRecord(p.copied, p.compute);
    while (cudaEventQuery(p.copied) == cudaErrorNotReady)
        usleep(100);
    return p.host[COUNT - 1] == 0;
}

const struct {
    const char *name;
    int (*run)(unsigned leave_out);
    bool has_race;
    unsigned leave_out;
} cases[] = {
        {"right", rounds, false, 0},
        {"query_is_a_wait", query_is_a_wait, false, 0},
        {"copy_does_not_wait", rounds, true, COPY_WAITS},
        {"host_does_not_wait", rounds, true, HOST_WAITS},
        {"host_is_only_late", rounds, true, HOST_LATE},
        {"buffer_is_reused", buffer_is_reused, true, 0},
        {"buffer_is_reused_late", buffer_is_reused_late, true, 0},
        {"streams_are_independent", streams_are_independent, true, 0},
};

int run_child(const char *program, const char *name)
{
    pid_t child = fork();
    if (!child) {
        setenv("TSAN_OPTIONS", "exitcode=66 halt_on_error=1", 1);
        if (!getenv("ORDER_VERBOSE"))
            if (!freopen("/dev/null", "w", stderr))
                abort();
        execl(program, program, name, (char *)nullptr);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
} // namespace

int main(int argc, char **argv)
{
    const int count = (int)(sizeof cases / sizeof *cases);
    for (int i = 0; argc > 1 && i < count; i++)
        if (!strcmp(cases[i].name, argv[1])) {
            create();
            return cases[i].run(cases[i].leave_out);
        }
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        int code = run_child(argv[0], cases[i].name);
        bool ok = code == (cases[i].has_race ? RACE_FOUND : 0);
        printf("%sok %d - %s\n", ok ? "" : "not ", i + 1, cases[i].name);
        if (!ok)
            printf("# ended with %d\n", code);
    }
    return 0;
}
