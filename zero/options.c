#include "zero/options.h"

struct zero_options zero_options_default(void)
{
    return (struct zero_options){
            .stage = 3,
            .overlap_comm = true,
            .reduce_bucket_size = 500000000,
            .allgather_bucket_size = 500000000,
            .prefetch_bucket_size = 50000000,
            .max_live_parameters = 1000000000,
            .max_reuse_distance = 1000000000,
            .sub_group_size = 1000000000,
    };
}
