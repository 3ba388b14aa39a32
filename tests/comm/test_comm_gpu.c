/* The suite on the stand-ins for CUDA and NCCL, over ranks as threads with a
 * GPU each; TAP. The same bits are wanted of NCCL, of staged collectives and of
 * comm_local (suite.c), in one level and in two. Arguments: nccl, ordered (NCCL
 * that adds as rings do, and sums of our own) or staged; brief: two groups, for
 * a thread sanitizer. */
#include "tests/comm/group.h"
#include "tests/support/tap.h"

#include <stdlib.h>
#include <string.h>

/* reduce_bytes: small, so that sums in rank order take several rounds. */
static const struct group_case groups[] = {
        {.size = 1},
        {.size = 2, .reduce_bytes = 65536},
        {.size = 3},
        {.size = 5, .reduce_bytes = 32768},
        {.size = 8},
        {.size = 4, .ranks_per_node = 2, .reduce_bytes = 65536},
        {.size = 8, .ranks_per_node = 4},
        {.size = 6, .ranks_per_node = 2, .reduce_bytes = 4096},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static bool is_taken(const struct group_case *group, bool is_brief)
{
    return !is_brief || group->size == 2 ||
           (group->size == 4 && group->ranks_per_node);
}

int main(int argc, char **argv)
{
    const char *way = argc >= 2 ? argv[1] : "nccl";
    bool is_ordered = strcmp(way, "ordered") == 0;
    bool is_staged = strcmp(way, "staged") == 0;
    bool is_brief = argc == 3;
    if (is_ordered)
        setenv("NCCL_STANDIN_SUMS", "ring", 1);
    for (int g = 0; g < GROUPS; g++) {
        struct group_case group = groups[g];
        if (!is_taken(&group, is_brief))
            continue;
        group.name = way;
        group.on_gpu = true;
        group.shard_bytes = 700000;
        group.backend = is_staged ? COMM_MPI : COMM_NCCL;
        group.reduce = is_ordered ? COMM_REDUCE_ORDERED : COMM_REDUCE_FAST;
        group_run(&group);
    }
    return tap_done();
}
