#include "base/progress.h"

static _Thread_local struct progress *used;

struct progress *progress_use(struct progress *progress)
{
    struct progress *before = used;
    used = progress;
    return before;
}

void progress_completed(void)
{
    if (used)
        atomic_fetch_add_explicit(&used->completed, 1, memory_order_relaxed);
}
