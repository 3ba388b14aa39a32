#include "zero/options.h"

/* Sizes are automatic (0): DeepSpeed's numbers, made for models of billions of
 * parameters, would keep a small model gathered and its gradients whole at
 * every stage. */
struct zero_options zero_options_default(void)
{
    return (struct zero_options){
            .stage = 3,
            .overlap_comm = true,
    };
}
