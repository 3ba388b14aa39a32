/* attention_engine.c - selects the attention of a GPU's table. */
#include "kernels/attention/attention_cuda.h"

#include "base/log.h"

#include "zd_config.h"

#include <stdatomic.h>

#if ZD_HAVE_CUDNN
#include "kernels/attention/attention_cudnn.h"
#endif

size_t attention_cuda_scratch_bytes(
        const struct attention_shape *shape, enum dtype dtype)
{
    struct attention_facts facts = attention_cuda_facts(dtype);
    size_t bytes = attention_own_scratch_bytes(shape);
#if ZD_HAVE_CUDNN
    if (facts.cudnn)
        return bytes + attention_cudnn_bytes(shape, &facts);
#endif
    return bytes + attention_work_bound(shape, &facts);
}

/* True once per process. */
static bool is_first(atomic_flag *said)
{
    return !atomic_flag_test_and_set(said);
}

#if ZD_HAVE_CUDNN
/* On an H100 our own backward takes 3 to 4 times as long as cuDNN's
 * nondeterministic one: 11 % of a step of Llama-3.2-1B at T = 4096, 3 % of
 * GPT-2 124M at T = 1024 (docs/measured/gpu.md). */
static void warn_own_backward(int version)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (kernels_attention() == ATTENTION_AUTO && device_facts().major == 9 &&
        version < 92500 && is_first(&said))
        zd_log_warning(
                "attention: using our own backward: cuDNN %d.%d sums dq in a "
                "fixed order only with O(T^2) memory on this GPU; this costs "
                "about a tenth of a step of Llama 1B at 4096 tokens; install "
                "cuDNN 9.25, or set model.attn = \"cudnn\", whose dq is not "
                "deterministic",
                version / 10000, version / 100 % 100);
}
#endif

enum zd_status attention_cuda_choose(
        enum dtype dtype, attention_fn **attention_out, const char **name_out)
{
    static atomic_flag not_there = ATOMIC_FLAG_INIT;
    enum attention_choice choice = kernels_attention();
    char why[256] = "it has no fp32 attention";
    int version;
    *attention_out = NULL;
    *name_out = "own attention";
    if (choice == ATTENTION_OWN)
        return ZD_OK;
    if (dtype != DTYPE_FP32 &&
        attention_open_cudnn(name_out, &version, why, sizeof why)) {
#if ZD_HAVE_CUDNN
        *attention_out = attention_cudnn(dtype);
        warn_own_backward(version);
#endif
        return ZD_OK;
    }
    if (choice == ATTENTION_CUDNN) {
        ZD_FAIL(ZD_ERR_UNFIT, "E1224", "attention by cuDNN: %s", why);
        return zd_fail_help(
                "model.attn = \"auto\" uses our own kernels where cuDNN "
                "is not available");
    }
    if (dtype != DTYPE_FP32 && is_first(&not_there))
        zd_log_info("attention: using our own kernels; cuDNN: %s", why);
    return ZD_OK;
}
