/* library.h - opens NVIDIA's libraries (cuBLASLt, cuDNN, NCCL) where they are:
 * none of them is needed to start this program, and none on a machine without a
 * GPU.
 *
 * Order: the folders of ZEROD_LIBRARY_PATH (separated by ':'); the dynamic
 * linker's own (LD_LIBRARY_PATH, the binary's rpath, ld.so.conf); the folders
 * "lib" beside and above the executable; CUDA_HOME and /usr/local/cuda; the
 * nvidia packages of the active Python environment (VIRTUAL_ENV,
 * CONDA_PREFIX). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The handle of the first of `names` that opens (ends with NULL; a path stands
 * for itself, alone), or NULL with the dynamic linker's last word in `why`. It
 * is never closed: NVIDIA's libraries do not survive that. */
void *library_open(const char *const *names, char *why, size_t why_bytes);

/* The file of a library that this process has loaded, by the begin of its name
 * ("libcudnn.so"). False: none is. */
bool library_path(const char *name, char *out, size_t bytes);
