/* must.h - memory without which there is nothing to go on with: names, lines of
 * a job file, JSON. Whoever can say what failed and go on, or let other ranks
 * know, returns ZD_ERR_MEMORY instead.
 *
 * Where the system refuses it, the process says so once (E0602) and ends with
 * the code of ZD_ERR_MEMORY. MPI is not called: it takes memory itself, and
 * locks that this thread may hold. mpirun ends the other ranks when one has
 * left with a code; where a launcher leaves them running, their watch finds
 * that this one is gone and ends them with 75 (comm/watch/watch.h). */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Prints the thread's error, if it has one of this kind, else that there is no
 * memory. Does not return. */
void zd_out_of_memory(void) __attribute__((noreturn));

/* Returns what it is given, which is not NULL. */
void *zd_must(void *memory);
/* `count` elements of so many bytes, all zero; count may be 0. */
void *zd_array(size_t count, size_t bytes);
/* `array` of so many bytes an element with room for `needed` of them: itself,
 * or moved to where there is twice the room or more. */
void *zd_grow(void *array, size_t *capacity, size_t needed, size_t bytes);
/* The same of a typed array, which is set. */
#define ZD_GROW(array, capacity, needed)                                       \
    ((array) = zd_grow((array), &(capacity), (size_t)(needed), sizeof *(array)))

/* Before a local variable that is set where it is declared: at the end of its
 * scope, however that is left, `fini` gets its address; ZD_FREED frees what it
 * points to. (jansson's json_auto_t does the same for a json_t.) */
#define ZD_SCOPED(fini) __attribute__((cleanup(fini)))
#define ZD_FREED        ZD_SCOPED(zd_free_at)
static inline void zd_free_at(void *pointer)
{
    void *memory;
    memcpy(&memory, pointer, sizeof memory);
    free(memory);
}
/* The value of a variable, which is all zero then: so it is handed on. */
#define ZD_TAKE(variable)                                                      \
    ({                                                                         \
        __typeof__(variable) zd_taken_ = (variable);                           \
        memset(&(variable), 0, sizeof(variable));                              \
        zd_taken_;                                                             \
    })
