/* fibre.cpp - the change of stacks, by assembly of x86-64: a fibre that does
 * not run has the registers that a call preserves on its stack, and below them
 * where it goes on (System V ABI, 3.2.1). */
#include "tests/cuda/stand_in/fibre.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#ifdef FIBRE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBRE_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace
{
#if defined(FIBRE_ASAN) || defined(FIBRE_TSAN)
const size_t STACK_BYTES = 256 << 10;
#else
const size_t STACK_BYTES = 128 << 10;
#endif
const size_t GUARD_BYTES = 4096;
const size_t COLORS = 16, COLOR_BYTES = 256;

/* Who changed to another last, in this thread. */
thread_local struct fibre *last_from;
} // namespace

extern "C" void zd_fibre_jump(void **save, void *load);
asm(R"(
    .text
    .globl zd_fibre_jump
    .hidden zd_fibre_jump
    .type zd_fibre_jump, @function
zd_fibre_jump:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size zd_fibre_jump, . - zd_fibre_jump
)");

static void prepare(struct fibre *fibre, void (*entry)(void))
{
    char *top = fibre->stack + fibre->stack_bytes -
                (size_t)fibre->color % COLORS * COLOR_BYTES;
    /* entry() finds the stack as after a call: 8 beyond a multiple of 16. */
    void **slots = reinterpret_cast<void **>(top) - 8;
    memset(slots, 0, 8 * sizeof *slots);
    slots[6] = reinterpret_cast<void *>(entry);
    fibre->stack_pointer = slots;
}

void fibre_adopt(struct fibre *fibre)
{
    memset(static_cast<void *>(fibre), 0, sizeof *fibre);
#ifdef FIBRE_TSAN
    fibre->tsan = __tsan_get_current_fiber();
#endif
}

void fibre_init(struct fibre *fibre, void (*entry)(void), int color)
{
    memset(static_cast<void *>(fibre), 0, sizeof *fibre);
    void *memory =
            mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE)) {
        perror("stand-in: a fibre's stack");
        abort();
    }
    fibre->stack = static_cast<char *>(memory) + GUARD_BYTES;
    fibre->stack_bytes = STACK_BYTES;
    fibre->bottom = fibre->stack;
    fibre->bottom_bytes = STACK_BYTES;
    fibre->color = color;
#ifdef FIBRE_TSAN
    fibre->tsan = __tsan_create_fiber(0);
#endif
    prepare(fibre, entry);
}

void fibre_reset(struct fibre *fibre, void (*entry)(void))
{
#ifdef FIBRE_ASAN
    __asan_unpoison_memory_region(fibre->stack, fibre->stack_bytes);
#endif
#ifdef FIBRE_TSAN
    __tsan_destroy_fiber(fibre->tsan);
    fibre->tsan = __tsan_create_fiber(0);
#endif
    prepare(fibre, entry);
}

#ifdef FIBRE_ASAN
/* `fake`: what was kept of this stack when it was left. */
static void arrive(void *fake)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (!last_from->stack) {
        last_from->bottom = bottom;
        last_from->bottom_bytes = bytes;
    }
}
#endif

void fibre_arrived(void)
{
#ifdef FIBRE_ASAN
    arrive(nullptr);
#endif
}

#ifdef FIBRE_TSAN
__attribute__((no_sanitize("thread")))
#endif
void
fibre_switch(struct fibre *from, struct fibre *to)
{
    last_from = from;
#ifdef FIBRE_TSAN
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef FIBRE_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to->bottom, to->bottom_bytes);
#endif
    zd_fibre_jump(&from->stack_pointer, to->stack_pointer);
#ifdef FIBRE_ASAN
    arrive(fake);
#endif
}
