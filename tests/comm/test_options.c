#include "comm/comm.h"

#include <criterion/criterion.h>

Test(comm_options, nccl_may_take_an_eighth_of_a_gpu)
{
    static const struct {
        int asked, multiprocessors, most;
    } cases[] = {
            {COMM_CTAS_AUTO, 132, 16},
            {COMM_CTAS_AUTO, 108, 13},
            {COMM_CTAS_AUTO, 40, 8},
            {COMM_CTAS_AUTO, 0, 8},
            {0, 132, 0},
            {4, 132, 4},
            {40, 132, 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct comm_options options = {.max_ctas = cases[i].asked};
        cr_expect_eq(
                comm_max_ctas(&options, cases[i].multiprocessors),
                cases[i].most, "case %zu", i);
    }
}

Test(comm_options, many_ranks_over_nccl_reduce_in_fp32)
{
    struct comm_options options = {.reduce_dtype = COMM_REDUCE_DTYPE_AUTO};
    cr_expect_not(comm_reduces_fp32(&options, COMM_TRANSPORT_NCCL, 64));
    cr_expect(comm_reduces_fp32(&options, COMM_TRANSPORT_NCCL, 65));
    cr_expect_not(comm_reduces_fp32(&options, COMM_TRANSPORT_STAGED, 65));
    cr_expect_not(comm_reduces_fp32(&options, COMM_TRANSPORT_HOST, 65));
    options.reduce = COMM_REDUCE_ORDERED; /* adds in fp32 whatever is sent */
    cr_expect_not(comm_reduces_fp32(&options, COMM_TRANSPORT_NCCL, 65));
    options.reduce_dtype = COMM_REDUCE_DTYPE_FP32;
    cr_expect(comm_reduces_fp32(&options, COMM_TRANSPORT_HOST, 2));
    options = (struct comm_options){.reduce_dtype = COMM_REDUCE_DTYPE_COMPUTE};
    cr_expect_not(comm_reduces_fp32(&options, COMM_TRANSPORT_NCCL, 1000));
}

/* Rows of ranks on hosts of as many neighbors. */
Test(comm_options, a_row_has_equal_nodes_or_none)
{
    static const struct {
        int first, stride, count, per_node, node;
    } cases[] = {
            {0, 1, 8, 4, 4},  /* two hosts */
            {0, 1, 8, 0, 0},  /* hosts differ */
            {4, 1, 4, 4, 4},  /* all on one */
            {1, 2, 4, 4, 2},  /* every second rank */
            {3, 4, 2, 4, 1},  /* one of each host */
            {2, 1, 4, 4, 2},  /* the end of one host, the begin of the next */
            {0, 3, 4, 4, 0},  /* 0 3 | 6 | 9 */
            {0, 3, 8, 12, 4}, /* 0 3 6 9 | 12 .. */
            {0, 1, 6, 4, 0},  /* the last one is smaller */
            {5, 1, 1, 4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_eq(
                comm_group_per_node(
                        cases[i].first, cases[i].stride, cases[i].count,
                        cases[i].per_node),
                cases[i].node, "case %zu", i);
}
