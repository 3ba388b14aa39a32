#include "kernels/kernels.h"

#include "kernels/attention/attention_cuda.h"
#include "kernels/backend.h"
#include "kernels/matmul/library.h"
#include "kernels/matmul/matmul_shape.h"
#include "kernels/matmul/scratch.h"
#include "kernels/plain.h"

#include "zd_config.h"

#if ZD_HAVE_CUDA
#include "kernels/matmul/cublaslt.h"
#include "kernels/matmul/matmul_cuda.h"
#endif

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* In the order of ZD_CPU_ISA, the highest that this build has. Only the bf16
 * paths use AVX512_BF16, and only their attention AMX. */
enum isa { ISA_BASE, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16, ISA_AMX };
enum { DTYPES = DTYPE_FP16 + 1 };

#if defined(__x86_64__)
/* Has the processor tiles for bf16, and does Linux allow them? A process asks
 * once; Linux before 5.16 refuses, as some sandboxes do. */
static bool has_tiles(void)
{
    enum { BF16 = 1 << 22, TILES = 1 << 24, BOTH = BF16 | TILES };
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    static atomic_int known;
    unsigned a, b, c, d;
    if (!known)
        known = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BOTH) == BOTH &&
                                syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM,
                                        XFEATURE_XTILEDATA) == 0
                        ? 1
                        : -1;
    return known > 0;
}
#endif

static enum isa machine_isa(void)
{
#if defined(__x86_64__)
    if (ZD_CPU_ISA >= ISA_AVX512 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return !__builtin_cpu_supports("avx512bf16") ? ISA_AVX512
               : has_tiles()                         ? ISA_AMX
                                                     : ISA_AVX512_BF16;
    if (ZD_CPU_ISA >= ISA_AVX2 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return ISA_AVX2;
#endif
    return ISA_BASE;
}

/* `isa` must be supported by this machine and this build. */
static const struct cpu_backend *backend_at(enum isa isa, enum dtype dtype)
{
    static const struct cpu_backend *const table[][DTYPES] =
    { {&backend_cpu_fp32_base, &backend_cpu_bf16_base, &backend_cpu_fp16_base},
#if ZD_CPU_ISA >= 1
      {&backend_cpu_fp32_avx2, &backend_cpu_bf16_avx2, &backend_cpu_fp16_avx2},
#endif
#if ZD_CPU_ISA >= 2
      {&backend_cpu_fp32_avx512, &backend_cpu_bf16_avx512,
       &backend_cpu_fp16_avx512},
      {&backend_cpu_fp32_avx512, &backend_cpu_bf16_avx512bf16,
       &backend_cpu_fp16_avx512},
      {&backend_cpu_fp32_avx512, &backend_cpu_bf16_amx,
       &backend_cpu_fp16_avx512},
#endif
    };
    return table[isa][dtype];
}

const struct cpu_backend *kernels_backend(const char *isa, enum dtype dtype)
{
    static const char *const names[] = {
            "base", "avx2", "avx512", "avx512bf16", "amx"};
    for (enum isa i = ISA_BASE; i <= machine_isa(); i++)
        if (strcmp(isa, names[i]) == 0)
            return backend_at(i, dtype);
    return NULL;
}

/* On AVX2 our own matmul is as fast as oneDNN's (bench/gemm; 175-182 GF/s on
 * two Zen 3 cores) and widens bf16 as it packs. With AVX-512, and on the
 * baseline, the library is faster. */
static bool has_library_sgemm(enum isa isa)
{
    return isa != ISA_AVX2 && (ZD_HAVE_ONEDNN || ZD_HAVE_OPENBLAS);
}

/* Matmuls of few rows are bound by memory, but a library packs the matrix for
 * them; also if one side is short, where only our baseline code is slower. */
static bool is_ours(const struct matmul *m)
{
    return rows_are_few(m) ||
           (machine_isa() != ISA_BASE && narrow_kind(m) != NARROW_NONE);
}

/* Runs the library, or our own code if that is faster or the library does not
 * support the type and shape (ZD_ERR_UNFIT). */
static enum zd_status library_matmul(
        struct stream *stream, const struct matmul *m)
{
    enum dtype type = m->a.type;
    bool is_fp8 = matmul_is_fp8(m); /* in a bf16 table */
    const struct kernels *own =
            &backend_at(machine_isa(), is_fp8 ? DTYPE_BF16 : type)->ops;
    enum zd_status status = ZD_ERR_UNFIT;
    if (is_fp8)
        return own->matmul(stream, m);
    assert(m->b.type == type && !matmul_has_gaps(m));
    if (m->epilogue != MATMUL_PLAIN)
        return matmul_by_parts(
                &(struct matmul_parts){
                        library_matmul, own->gelu_forward, own->gelu_backward,
                        own->reduce_rows},
                stream, m);
    if (!is_ours(m))
        status = type == DTYPE_FP32 ? library_sgemm(m, kernels_threads())
                                    : library_primitive(m, kernels_threads());
    return status == ZD_ERR_UNFIT ? own->matmul(stream, m) : status;
}

/* For bf16 the library is used only with AMX tiles, which our matmuls have no
 * code for. With AVX512_BF16 ours is faster: 1.08 times for GPT-2's step on
 * Zen 5 (bench/gemm; oneDNN 2.6). */
static bool uses_library(enum dtype dtype)
{
    enum isa isa = machine_isa();
    return dtype == DTYPE_FP32
                   ? has_library_sgemm(isa)
                   : dtype == DTYPE_BF16 && isa >= ISA_AVX512_BF16 &&
                             library_has_amx();
}

size_t attention_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype,
        enum device_backend backend)
{
    const struct cpu_backend *cpu = backend_at(machine_isa(), dtype);
    if (backend == DEVICE_CUDA)
        return attention_cuda_scratch_bytes(shape, dtype);
    return cpu->attention_floats(shape) * sizeof(float);
}

enum zd_status kernels_device(
        enum dtype dtype, const struct kernels **table_out)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        return kernels_cuda(dtype, table_out);
#endif
    return kernels_cpu(dtype, table_out);
}

void kernels_open_libraries(void)
{
#if ZD_HAVE_CUDA
    const struct cublaslt *api;
    if (cublaslt_open(&api) != ZD_OK)
        zd_error_clear();
#endif
}

char *kernels_products_text(void)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        return matmul_algorithms();
#endif
    return NULL;
}

const char *kernels_products_take(const char *text)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        return matmul_take_algorithms(text);
#endif
    return NULL;
}

enum zd_status kernels_products_library(const char **name_out)
{
#if ZD_HAVE_CUDA
    const struct cublaslt *api;
    ZD_TRY(cublaslt_open(&api));
    *name_out = api->name;
    return ZD_OK;
#else
    return ZD_FAIL(ZD_ERR_UNFIT, "E1220", "this zerod was built without CUDA");
#endif
}

void kernels_allow_tf32(bool allowed)
{
#if ZD_HAVE_CUDA
    if (device_backend() == DEVICE_CUDA)
        matmul_set_tf32(allowed);
#endif
}

void kernels_leave_multiprocessors(int count)
{
#if ZD_HAVE_CUDA
    int all = device_facts().multiprocessors;
    if (device_backend() == DEVICE_CUDA)
        matmul_set_sm_target(count > 0 && count < all ? all - count : 0);
#endif
}

size_t matmul_scratch_bytes(enum dtype dtype)
{
    enum isa isa = machine_isa();
    if (dtype == DTYPE_FP32 && has_library_sgemm(isa))
        return 0;
    return backend_at(isa, dtype)->gemm_scratch_bytes(kernels_threads());
}

/* Allocates the panels now, so that no step does. */
static enum zd_status take_scratch(enum dtype dtype)
{
    struct scratch *scratch = NULL;
    ZD_TRY(scratch_acquire(matmul_scratch_bytes(dtype), &scratch));
    scratch_release(scratch);
    return ZD_OK;
}

enum zd_status kernels_cpu(enum dtype dtype, const struct kernels **table_out)
{
    /* One table per type; later calls write the same values again. The lock is
     * for ranks that are threads. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kernels tables[DTYPES];
    static char names[DTYPES][96];
    static const char *const isa_names[] = {
            "baseline", "AVX2", "AVX-512", "AVX-512 with bf16", "AMX"};
    enum isa isa = machine_isa();
    ZD_TRY(take_scratch(dtype));

    struct kernels table = backend_at(isa, dtype)->ops;
    const char *products = "own matmuls";
    if (uses_library(dtype)) {
        table.matmul = library_matmul;
        products = matmul_library();
    }
    int i = dtype, threads = kernels_threads();
    pthread_mutex_lock(&lock);
    ZD_PRINT(
            names[i], "cpu %s (%s, %s, %d thread%s)", dtype_name(dtype),
            products, isa_names[isa], threads, threads == 1 ? "" : "s");
    table.name = names[i];
    tables[i] = table;
    pthread_mutex_unlock(&lock);
    *table_out = &tables[i];
    return ZD_OK;
}

enum zd_status kernels_plain(enum dtype dtype, const struct kernels **table_out)
{
    static const struct kernels *const tables[DTYPES] = {
            &kernels_plain_fp32, &kernels_plain_bf16, &kernels_plain_fp16};
    *table_out = tables[dtype];
    return ZD_OK;
}
