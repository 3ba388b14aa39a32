/* fibre.h - a stack of its own within a thread of the host, and the change from
 * one to another in a few instructions. Sanitizers are told. */
#pragma once

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBRE_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBRE_TSAN 1
#endif

struct fibre {
    void *stack_pointer;
    char *stack; /* NULL: the thread's own */
    size_t stack_bytes;
    void *tsan;
    const void *bottom; /* of the stack, for ASan */
    size_t bottom_bytes;
    int color;
};

/* The calling thread itself, so that others can change back to it. */
void fibre_adopt(struct fibre *fibre);
/* A fibre that will run entry(), which never returns. `color` spreads the
 * stacks over the cache's sets. */
void fibre_init(struct fibre *fibre, void (*entry)(void), int color);
/* As just made: what it was doing is forgotten. */
void fibre_reset(struct fibre *fibre, void (*entry)(void));
void fibre_switch(struct fibre *from, struct fibre *to);
/* The first thing that entry() does. */
void fibre_arrived(void);
