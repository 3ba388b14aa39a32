/* gemm_cuda.c - TFLOP/s of every matrix product in a step of GPT-2 and Llama on
 * a GPU, with the algorithm that was the fastest; and the tokens/s that the
 * products alone would allow.
 *
 *   gemm_cuda [MODEL]     gpt2-124m gpt2-774m gpt2-xl llama-1b llama-3b
 * llama-8b; all of them without one
 *
 * bf16, random data. A forward product is (tokens, in) by the weight; dX by its
 * transpose; dW is fp32, of all tokens, and overwrites. GELU, its gradient and
 * sums of columns (dbias) are part of the product they belong to. The head goes
 * by 2048 tokens at a time. */
#include "base/device/device_cuda.h"
#include "kernels/kernels.h"
#include "kernels/matmul/matmul_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_TOKENS = 2048, RUNS = 11 };

struct layer_product {
    const char *name;
    int in, out;
};

struct model {
    const char *name;
    int tokens; /* of a micro-batch */
    int layers, V, C;
    bool is_gpt2; /* weights (in, out), biases, GELU */
    struct layer_product products[4];
};

static const struct model models[] = {
        {"tiny",
         64,
         2,
         256,
         64,
         true,
         {{"qkv", 64, 192},
          {"proj", 64, 64},
          {"fc", 64, 256},
          {"down", 256, 64}}},
        {"gpt2-124m",
         32 * 1024,
         12,
         50257,
         768,
         true,
         {{"qkv", 768, 2304},
          {"proj", 768, 768},
          {"fc", 768, 3072},
          {"down", 3072, 768}}},
        {"gpt2-774m",
         16 * 1024,
         36,
         50257,
         1280,
         true,
         {{"qkv", 1280, 3840},
          {"proj", 1280, 1280},
          {"fc", 1280, 5120},
          {"down", 5120, 1280}}},
        {"gpt2-xl",
         8 * 1024,
         48,
         50257,
         1600,
         true,
         {{"qkv", 1600, 4800},
          {"proj", 1600, 1600},
          {"fc", 1600, 6400},
          {"down", 6400, 1600}}},
        {"llama-1b",
         4 * 4096,
         16,
         128256,
         2048,
         false,
         {{"qkv", 2048, 3072},
          {"o", 2048, 2048},
          {"gate|up", 2048, 16384},
          {"down", 8192, 2048}}},
        {"llama-3b",
         2 * 4096,
         28,
         128256,
         3072,
         false,
         {{"qkv", 3072, 5120},
          {"o", 3072, 3072},
          {"gate|up", 3072, 16384},
          {"down", 8192, 3072}}},
        {"llama-8b",
         8192,
         32,
         128256,
         4096,
         false,
         {{"qkv", 4096, 6144},
          {"o", 4096, 4096},
          {"gate|up", 4096, 28672},
          {"down", 14336, 4096}}},
};

enum pass { FORWARD, DX, DW };
static const char *const pass_names[] = {"forward", "dX", "dW"};

/* One product of a model: y(tokens, out) = x(tokens, in) w. */
struct job {
    const struct kernels *k;
    const struct model *model;
    enum pass pass;
    int tokens, in, out;
    bool gelu; /* after it; of dX: before it */
    bool has_bias;
    bool is_head;    /* weights (out, in); rows of y as those of logits */
    void *x, *w, *y; /* dX writes x, dW writes w (fp32) */
    void *aux;       /* like y, or of dX like x */
    void *bias;      /* fp32 room for the greatest */
};

static struct matmul matmul_of(const struct job *j)
{
    bool linear = !j->model->is_gpt2 || j->is_head; /* weights (out, in) */
    int row = j->is_head ? logits_stride(DEVICE_CUDA, j->out) : j->out;
    enum dtype type = j->k->dtype;
    struct matmul_operand y = {j->y, type, false, row};
    struct matmul_operand x = {j->x, type};
    if (j->pass == FORWARD)
        return (struct matmul){
                .M = j->tokens,
                .N = j->out,
                .K = j->in,
                .a = x,
                .b = {j->w, type, linear},
                .out = {j->y, type, row},
                .bias = j->has_bias ? j->bias : NULL,
                .epilogue = j->gelu ? MATMUL_GELU : MATMUL_PLAIN,
                .aux = j->aux};
    if (j->pass == DX)
        return (struct matmul){
                .M = j->tokens,
                .N = j->in,
                .K = j->out,
                .a = y,
                .b = {j->w, type, !linear},
                .out = {j->x, type},
                .epilogue = j->gelu ? MATMUL_DGELU : MATMUL_PLAIN,
                .aux = j->aux};
    struct matmul m = {
            .M = linear ? j->out : j->in,
            .N = linear ? j->in : j->out,
            .K = j->tokens,
            .a = linear ? y : x,
            .b = linear ? x : y,
            .out = {j->w, DTYPE_FP32},
            .epilogue = !j->has_bias ? MATMUL_PLAIN
                        : linear     ? MATMUL_SUM_A
                                     : MATMUL_SUM_B,
            .aux = j->bias};
    m.a.transposed = true;
    return m;
}

static enum zd_status run(const struct job *j)
{
    struct matmul m = matmul_of(j);
    return j->k->matmul(NULL, &m);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median milliseconds, after the call that makes the plan. */
static enum zd_status measure(const struct job *j, double *ms_out)
{
    cudaStream_t stream = device_cuda_stream(NULL);
    cudaEvent_t start, stop;
    float took[RUNS];
    ZD_CUDA(cudaEventCreate(&start));
    ZD_CUDA(cudaEventCreate(&stop));
    ZD_TRY(run(j));
    for (int i = 0; i < RUNS; i++) {
        ZD_CUDA(cudaEventRecord(start, stream));
        ZD_TRY(run(j));
        ZD_CUDA(cudaEventRecord(stop, stream));
        ZD_CUDA(cudaEventSynchronize(stop));
        ZD_CUDA(cudaEventElapsedTime(&took[i], start, stop));
    }
    qsort(took, RUNS, sizeof *took, by_value);
    *ms_out = (double)took[RUNS / 2];
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return device_check();
}

/* --- memory -------------------------------------------------------------- */

/* Uniform in [-1, 1) as bf16, in all of it: never zeros, which are faster. */
static enum zd_status fill(void *device, size_t bytes)
{
    enum { BLOCK = 1 << 22 };
    uint16_t *host = malloc(BLOCK * sizeof *host);
    uint32_t state = 1;
    enum zd_status status = ZD_OK;
    if (!host)
        return ZD_FAIL(ZD_ERR_MEMORY, "E0602", "no memory for random data");
    for (size_t i = 0; i < BLOCK; i++) {
        state = state * 1664525u + 1013904223u;
        host[i] = float_to_bf16((float)(int32_t)state * 0x1p-31f);
    }
    for (size_t done = 0; done < bytes && status == ZD_OK;) {
        size_t some = bytes - done < BLOCK * sizeof *host
                              ? bytes - done
                              : BLOCK * sizeof *host;
        status = device_write((char *)device + done, host, some);
        done += some;
    }
    free(host);
    return status;
}

static size_t greatest(size_t a, size_t b)
{
    return a > b ? a : b;
}

struct memory {
    void *x, *w, *y, *aux, *bias, *workspace;
    size_t x_bytes, w_bytes, bias_bytes, workspace_bytes;
};

static void measure_model(const struct model *m, struct memory *memory)
{
    size_t tokens = (size_t)m->tokens, wide = 0;
    size_t most =
            (size_t)HEAD_TOKENS * (size_t)logits_stride(DEVICE_CUDA, m->V) * 2;
    size_t w = (size_t)m->V * (size_t)m->C * 4;
    for (int i = 0; i < 4; i++) {
        const struct layer_product *p = &m->products[i];
        wide = greatest(wide, (size_t)(p->in > p->out ? p->in : p->out));
        w = greatest(w, (size_t)p->in * (size_t)p->out * 4);
    }
    memory->x_bytes = greatest(most, tokens * wide * 2);
    memory->w_bytes = w;
    memory->bias_bytes = (size_t)m->V * 4;
    memory->workspace_bytes = kernels_workspace_bytes(&(struct kernels_request){
            .backend = DEVICE_CUDA,
            .dtype = DTYPE_BF16,
            .N = m->tokens,
            .C = m->C,
            .columns = (int)wide,
            .V = m->V,
    });
}

static enum zd_status take(struct memory *memory)
{
    ZD_TRY(device_take(memory->x_bytes, &memory->x));
    ZD_TRY(device_take(memory->x_bytes, &memory->y));
    ZD_TRY(device_take(memory->x_bytes, &memory->aux));
    ZD_TRY(device_take(memory->w_bytes, &memory->w));
    ZD_TRY(device_take(memory->bias_bytes, &memory->bias));
    return device_take(memory->workspace_bytes, &memory->workspace);
}

static void give(struct memory *memory)
{
    device_give(memory->x, memory->x_bytes);
    device_give(memory->y, memory->x_bytes);
    device_give(memory->aux, memory->x_bytes);
    device_give(memory->w, memory->w_bytes);
    device_give(memory->bias, memory->bias_bytes);
    device_give(memory->workspace, memory->workspace_bytes);
}

/* --- the table ----------------------------------------------------------- */

static enum zd_status one(const struct job *j, const char *name, double *ms_out)
{
    char algorithm[64];
    struct matmul m = matmul_of(j);
    double operations = 2.0 * j->tokens * j->in * j->out;
    ZD_TRY(measure(j, ms_out));
    matmul_algorithm(&m, algorithm, sizeof algorithm);
    printf("%-10s %-8s %-8s %7d %7d %7d %9.1f us %7.1f TFLOP/s  %s\n",
           j->model->name, name, pass_names[j->pass], j->tokens, j->in, j->out,
           *ms_out * 1e3, operations / *ms_out * 1e-9, algorithm);
    fflush(stdout);
    return ZD_OK;
}

/* Milliseconds of the three passes of one weight. */
static enum zd_status three(struct job job, const char *name, double *ms_out)
{
    *ms_out = 0.0;
    for (int pass = FORWARD; pass <= DW; pass++) {
        double ms;
        job.pass = (enum pass)pass;
        /* gelu follows fc; its gradient comes with dX of down */
        job.gelu = job.model->is_gpt2 &&
                   strcmp(name, pass == FORWARD ? "fc" : "down") == 0 &&
                   pass != DW;
        ZD_TRY(one(&job, name, &ms));
        *ms_out += ms;
    }
    return ZD_OK;
}

static enum zd_status run_model(
        const struct kernels *k, const struct model *m, struct memory *memory)
{
    struct job job = {
            .k = k,
            .model = m,
            .tokens = m->tokens,
            .has_bias = m->is_gpt2,
            .x = memory->x,
            .w = memory->w,
            .y = memory->y,
            .aux = memory->aux,
            .bias = memory->bias,
    };
    double total = 0.0, ms;
    ZD_TRY(fill(memory->x, memory->x_bytes));
    ZD_TRY(fill(memory->y, memory->x_bytes));
    ZD_TRY(fill(memory->aux, memory->x_bytes));
    for (int i = 0; i < 4; i++) {
        job.in = m->products[i].in, job.out = m->products[i].out;
        ZD_TRY(fill(memory->w, memory->w_bytes)); /* dW was the last */
        ZD_TRY(three(job, m->products[i].name, &ms));
        total += m->layers * ms;
    }
    job.in = m->C, job.out = m->V, job.tokens = HEAD_TOKENS;
    job.has_bias = false;
    job.is_head = true;
    ZD_TRY(fill(memory->w, memory->w_bytes));
    ZD_TRY(three(job, "head", &ms));
    total += ms * m->tokens / HEAD_TOKENS;
    printf("%-10s products alone: %.0f tokens/s\n\n", m->name,
           m->tokens / total * 1e3);
    return ZD_OK;
}

static enum zd_status bench(const char *only)
{
    const struct kernels *k;
    struct device *device;
    struct device_facts facts;
    ZD_TRY(device_open(DEVICE_CUDA, 0, 1, &device));
    device_use(device);
    ZD_TRY(kernels_cuda(DTYPE_BF16, &k));
    facts = device_facts();
    printf("%s, %d multiprocessors; %s; median of %d\n", facts.name,
           facts.multiprocessors, k->name, RUNS);
    printf("%-10s %-8s %-8s %7s %7s %7s\n", "model", "product", "pass",
           "tokens", "in", "out");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct memory memory = {0};
        if (strcmp(only ? only : models[i].name, models[i].name) != 0 ||
            (!only && strcmp(models[i].name, "tiny") == 0))
            continue;
        measure_model(&models[i], &memory);
        enum zd_status status = take(&memory);
        kernels_set_workspace(memory.workspace, memory.workspace_bytes);
        if (status == ZD_OK)
            status = run_model(k, &models[i], &memory);
        give(&memory);
        ZD_TRY(status);
    }
    matmul_cuda_close();
    device_close(device);
    return ZD_OK;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    bool is_known = !only;
    for (size_t i = 0; only && i < sizeof models / sizeof models[0]; i++)
        is_known = is_known || strcmp(only, models[i].name) == 0;
    if (!is_known) {
        fprintf(stderr,
                "gemm_cuda: no model %s; they are gpt2-124m gpt2-774m "
                "gpt2-xl llama-1b llama-3b llama-8b\n",
                only);
        return zd_exit_code(ZD_ERR_USAGE);
    }
    enum zd_status status = bench(only);
    zd_error_print(stderr, zd_error_get());
    return zd_exit_code(status);
}
