/* library.h - finds and opens NVIDIA's libraries (cuBLASLt, cuDNN, NCCL) at run
 * time: the program starts without them, and a machine without a GPU does not
 * need them.
 *
 * Order: the folders of ZEROD_LIBRARY_PATH (separated by ':'); the dynamic
 * linker's own (LD_LIBRARY_PATH, the binary's rpath, ld.so.conf); the folders
 * "lib" beside and above the executable; CUDA_HOME and /usr/local/cuda; the
 * nvidia packages of the active Python environment (VIRTUAL_ENV,
 * CONDA_PREFIX). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The handle of the first of `names` that opens (NULL-terminated; a path is
 * opened as it is), or NULL with the dynamic linker's last message in `why`. It
 * is never closed: NVIDIA's libraries cannot be unloaded safely. */
void *library_open(const char *const *names, char *why, size_t why_bytes);

/* The file of a library that this process has loaded, by a prefix of its name
 * ("libcudnn.so"). False: not loaded. */
bool library_path(const char *name, char *out, size_t bytes);
