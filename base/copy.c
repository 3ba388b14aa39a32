#include "base/copy.h"

#include <stdint.h>
#include <string.h>

void copy_in_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

/* Sanitizers do not see such stores. */
#if defined __SSE2__ && !defined __SANITIZE_THREAD__ &&                        \
        !defined __SANITIZE_ADDRESS__
#include <emmintrin.h>

enum { LINE = 64, WORD = sizeof(__m128i) };

void copy_past_cache(void *to, const void *from, size_t bytes)
{
    char *out = to;
    const char *in = from;
    size_t skip = (LINE - (uintptr_t)out % LINE) % LINE;
    size_t begin = skip < bytes ? skip : bytes;
    size_t end = begin + (bytes - begin) / LINE * LINE;
    memcpy(out, in, begin);
    for (size_t at = begin; at < end; at += LINE) {
        __m128i words[LINE / WORD];
        memcpy(words, in + at, LINE);
        for (int i = 0; i < LINE / WORD; i++)
            _mm_stream_si128((void *)(out + at + i * WORD), words[i]);
    }
    _mm_sfence(); /* seen before what the thread writes next */
    memcpy(out + end, in + end, bytes - end);
}
#else
void copy_past_cache(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
#endif
