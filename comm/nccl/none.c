/* A program built without NCCL. */
#include "comm/nccl/nccl.h"

enum zd_status nccl_available(void)
{
    return ZD_FAIL(ZD_ERR_UNFIT, "E1231", "this zerod was built without NCCL");
}

enum zd_status comm_nccl_create(
        struct comm *control, const struct comm_options *options,
        struct comm **comm_out)
{
    return nccl_available();
}

enum zd_status comm_nccl_library(const char **name_out)
{
    return nccl_available();
}
