/* stream.h - what streams and events share: the order of a stream, and what a
 * thread sanitizer is told of it (see stream.cpp). */
#pragma once

#include "tests/cuda/stand_in/internal.h"

namespace standin
{

#ifdef STANDIN_TSAN
const auto ACQUIRE = std::memory_order_relaxed;
const auto RELEASE = std::memory_order_relaxed;
inline void tell_release(void *key)
{
    __tsan_release(key);
}
inline void tell_acquire(void *key)
{
    __tsan_acquire(key);
}
#else
const auto ACQUIRE = std::memory_order_acquire;
const auto RELEASE = std::memory_order_release;
inline void tell_release(void *key)
{
    (void)key;
}
inline void tell_acquire(void *key)
{
    (void)key;
}
#endif

bool is_done(struct stream *s, uint64_t at);
void wait_until(struct stream *s, uint64_t at);

/* Streams and events live for ever once made (a few hundred bytes), so that the
 * use of one that was destroyed is noticed and not a crash. */
const uint32_t ALIVE = 0x57ea4a11u;

/* The one that a handle stands for; NULL, and a report, when there is none
 * (`found` is NULL) or it was destroyed. */
template <typename T> T *alive(T *found, const void *handle, const char *what)
{
    if (found && found->alive == ALIVE)
        return found;
    if (found)
        report("%s %p was destroyed", what, handle);
    else
        report("%p is no %s", handle, what);
    return nullptr;
}

} // namespace standin
