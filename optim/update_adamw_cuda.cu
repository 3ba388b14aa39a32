/* update_adamw_cuda.cu - AdamW on a GPU. */
#include "optim/update_cuda.cuh"

enum zd_status update_launch_adamw(const struct update_args *args)
{
    switch (args->span.layout.lane[OPTIM_V]) {
    case OPTIM_8BIT:
        return update_launch_m<RULE_ADAMW, OPTIM_8BIT>(args);
    case OPTIM_BF16:
        return update_launch_m<RULE_ADAMW, OPTIM_BF16>(args);
    default:
        return update_launch_m<RULE_ADAMW, OPTIM_FP32>(args);
    }
}
