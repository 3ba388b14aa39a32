/* attention_facts.c - collects the facts for attention_choose: the job's
 * choice, cuDNN's version and the device. */
#include "kernels/attention/attention_cuda.h"

#include "zd_config.h"

#include <stdatomic.h>
#include <stdio.h>

#if ZD_HAVE_CUDNN
#include "kernels/attention/cudnn_door.h"
#endif

/* Set at start, before a plan is made. */
static _Atomic int chosen = ATTENTION_AUTO;

void kernels_set_attention(enum attention_choice choice)
{
    chosen = choice;
}

enum attention_choice kernels_attention(void)
{
    return (enum attention_choice)chosen;
}

#if ZD_HAVE_CUDNN
bool attention_open_cudnn(
        const char **name_out, int *version_out, char *why, size_t why_bytes)
{
    static char name[64];
    const char *library;
    if (!cudnn_open(&library, version_out, why, why_bytes))
        return false;
    ZD_PRINT(name, "%s attention", library);
    *name_out = name;
    return true;
}
#else
bool attention_open_cudnn(
        const char **name_out, int *version_out, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "this program was built without cudnn-frontend");
    return false;
}
#endif

struct attention_facts attention_cuda_facts(enum dtype dtype)
{
    char why[256];
    const char *name;
    struct attention_facts facts = {
            .choice = kernels_attention(),
            .dtype = dtype,
            .has_cudnn = ZD_HAVE_CUDNN,
    };
    if (device_backend() != DEVICE_CUDA)
        return facts;
    facts.major = device_facts().major;
    if (facts.choice != ATTENTION_OWN && dtype != DTYPE_FP32)
        facts.has_cudnn =
                attention_open_cudnn(&name, &facts.cudnn, why, sizeof why);
    return facts;
}
