#include "model/model.h"

#include <assert.h>
#include <math.h>

int checkpointing_segment(struct checkpointing checkpointing, int layers)
{
    switch (checkpointing.mode) {
    case CHECKPOINTING_NONE:
    case CHECKPOINTING_SELECTIVE:
        return 0;
    case CHECKPOINTING_FULL:
        return 1;
    case CHECKPOINTING_EVERY:
        return checkpointing.every;
    case CHECKPOINTING_SQRT:
        return (int)lround(sqrt((double)layers));
    case CHECKPOINTING_AUTO:
        break;
    }
    assert(!"auto is settled before it gets here");
    return 0;
}
