#include "tests/comm/count_isend.h"

#include <assert.h>
#include <mpi.h>

static uint64_t bytes_by_tag[16];

uint64_t isend_bytes(int tag)
{
    return bytes_by_tag[tag];
}

int MPI_Isend(
        const void *data, int count, MPI_Datatype type, int to, int tag,
        MPI_Comm comm, MPI_Request *request)
{
    int width;
    MPI_Type_size(type, &width);
    assert(tag >= 0 && tag < 16);
    bytes_by_tag[tag] += (uint64_t)count * (uint64_t)width;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}
