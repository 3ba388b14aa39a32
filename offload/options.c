#include "offload/options.h"

#include <stddef.h>

struct offload_options offload_options_default(void)
{
    return (struct offload_options){
            .undo_memory = OFFLOAD_UNDO_AUTO,
            .device_update = -1,
            .aio = {.block_bytes = 1048576, .queue_depth = 8},
    };
}
