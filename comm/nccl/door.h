/* door.h - libnccl.so.2, opened at its first use, as a table of functions. Only
 * where ZD_HAVE_NCCL. */
#pragma once

#include "base/status.h"

#include <nccl.h>

/* GetVersion, CommSplit, ..: the library's functions of these names. */
#define NCCL_FUNCTIONS(F)                                                      \
    F(GetVersion)                                                              \
    F(GetUniqueId)                                                             \
    F(CommInitRankConfig)                                                      \
    F(CommSplit)                                                               \
    F(CommGetAsyncError)                                                       \
    F(CommAbort)                                                               \
    F(CommFinalize)                                                            \
    F(CommDestroy)                                                             \
    F(GetErrorString)                                                          \
    F(GetLastError)                                                            \
    F(GroupStart)                                                              \
    F(GroupEnd)                                                                \
    F(AllGather)                                                               \
    F(ReduceScatter)                                                           \
    F(Send)                                                                    \
    F(Recv)

struct nccl_functions {
#define MEMBER(name) __typeof__(nccl##name) *name;
    NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
    int version; /* 22809: 2.28.9 */
    char version_text[32];
};

/* Opens the library once per process. ZD_ERR_UNFIT when there is none, or one
 * that lacks a function. */
enum zd_status nccl_open(const struct nccl_functions **functions_out);

/* Turn an NCCL error into ours; ncclInProgress is not an error. comm may be
 * NULL. */
enum zd_status nccl_check(
        const struct nccl_functions *nccl, ncclResult_t result,
        const char *call, ncclComm_t comm);
#define ZD_NCCL(nccl, comm, function, ...)                                     \
    ZD_TRY(nccl_check(                                                         \
            (nccl), (nccl)->function(__VA_ARGS__), "nccl" #function, (comm)))
