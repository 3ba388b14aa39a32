/* must.h - small allocations that the program cannot go on without: names,
 * lines of a job file, JSON. Code that can continue after a failure, or tell
 * the other ranks, returns ZD_ERR_MEMORY instead.
 *
 * If one fails, the process says so once (E0602) and ends with the exit code of
 * ZD_ERR_MEMORY. MPI is not called: it allocates itself, and takes locks that
 * this thread may hold. mpirun ends the other ranks when one exits with an
 * error; under a launcher that does not, their watch finds that this rank is
 * gone and ends them with 75 (comm/watch/watch.h). */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Prints the thread's error if it is a ZD_ERR_MEMORY, else "out of memory".
 * Does not return. */
void zd_out_of_memory(void) __attribute__((noreturn));

/* Returns its argument; ends the process when it is NULL. */
void *zd_must(void *memory);
/* `count` elements of so many bytes, all zero; count may be 0. */
void *zd_array(size_t count, size_t bytes);
/* `array` with room for `needed` elements of `bytes` each: itself, or moved,
 * with at least twice the capacity. */
void *zd_grow(void *array, size_t *capacity, size_t needed, size_t bytes);
/* The same for a typed array variable, which is updated. */
#define ZD_GROW(array, capacity, needed)                                       \
    ((array) = zd_grow((array), &(capacity), (size_t)(needed), sizeof *(array)))

/* For a local variable that is initialized where it is declared: when its scope
 * is left, in any way, `fini` is called with its address; ZD_FREED frees what
 * it points to. (jansson's json_auto_t does the same for a json_t.) */
#define ZD_SCOPED(fini) __attribute__((cleanup(fini)))
#define ZD_FREED        ZD_SCOPED(zd_free_at)
static inline void zd_free_at(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}
/* Moves a value out of a variable, which is all zero afterwards. */
#define ZD_TAKE(variable)                                                      \
    ({                                                                         \
        __typeof__(variable) zd_taken_ = (variable);                           \
        memset(&(variable), 0, sizeof(variable));                              \
        zd_taken_;                                                             \
    })
