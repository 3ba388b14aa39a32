/*
 * limit_files.c - an MPI_Init_thread that then limits how large the files of
 * one rank may grow, for LD_PRELOAD: of rank ZEROD_TEST_FILE_RANK to
 * ZEROD_TEST_FILE_KIB KiB. (A limit of the shell also stops Open MPI, which
 * makes larger files of its own while it starts.)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given)
{
    int error = PMPI_Init_thread(argc, argv, wanted, given);
    const char *kib = getenv("ZEROD_TEST_FILE_KIB");
    const char *limited = getenv("ZEROD_TEST_FILE_RANK");
    int rank = 0;
    if (error != MPI_SUCCESS || !kib || !limited)
        return error;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    rlim_t bytes = strtoul(kib, NULL, 10) * 1024;
    if (rank == atoi(limited) &&
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes}) != 0)
        perror("setrlimit");
    return error;
}
