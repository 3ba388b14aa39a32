/* hold.c - somebody else on the GPU: takes MIB of it and holds them until its
 * stdin ends. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    void *memory;
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 0) << 20;
    cudaError_t error = cudaMalloc(&memory, bytes);
    printf("%s\n", cudaGetErrorName(error));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return error != cudaSuccess;
}
