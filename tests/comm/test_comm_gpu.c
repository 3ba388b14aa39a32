/* The suite on the stand-ins for CUDA and NCCL, over ranks as threads with a
 * GPU each; TAP. The same bits are wanted of NCCL, of staged collectives and of
 * comm_local (suite.c), in one level and in two. Arguments: nccl or staged;
 * brief: two groups, for a thread sanitizer. */
#include "tests/comm/group.h"
#include "tests/comm/suite.h"

#include <stdio.h>
#include <string.h>

static const struct group_case groups[] = {
        {.size = 1, .shard_bytes = 700000},
        {.size = 2, .shard_bytes = 700000},
        {.size = 3, .shard_bytes = 700000},
        {.size = 8, .shard_bytes = 700000},
        {.size = 4, .ranks_per_node = 2, .shard_bytes = 700000},
        {.size = 8, .ranks_per_node = 4, .shard_bytes = 700000},
        {.size = 8, .ranks_per_node = 2, .shard_bytes = 700000},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

int main(int argc, char **argv)
{
    bool is_staged = argc >= 2 && strcmp(argv[1], "staged") == 0;
    bool is_brief = argc == 3;
    int number = 0, failed = 0;
    printf("1..%d\n", (is_brief ? 2 : GROUPS) * suite_case_count);
    for (int g = 0; g < GROUPS; g++) {
        if (is_brief && groups[g].size != 2 && groups[g].size != 4)
            continue;
        struct group_case group = groups[g];
        group.name = is_staged ? "staged" : "nccl";
        group.on_gpu = true;
        group.backend = is_staged ? COMM_MPI : COMM_NCCL;
        failed += group_run(&group, &number);
    }
    return failed != 0;
}
