#include "comm/comm_mpi.h"

enum zd_status mpi_check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (code == MPI_SUCCESS)
        return ZD_OK;
    MPI_Error_string(code, text, &length);
    return ZD_FAIL(ZD_ERR_PEER, "E0502", "%s failed: %.*s", call, length, text);
}

int mpi_peer(const struct comm *comm, int i)
{
    return i < comm->rank ? i : i + 1;
}

void comm_mpi_library(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(out, bytes, "%s", text);
}
