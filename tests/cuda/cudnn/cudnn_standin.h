/* cudnn_standin.h - what a test tells the stand-in for cudnn-frontend, and what
 * that has been asked. A graph that is executed clears its first output, by the
 * runtime's functions that the headers find; or it computes (attention.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct cudnn_standin {
    /* set by the test */
    size_t version;               /* 90100: 9.1 */
    const char *refuses_graph;    /* what check_support says; NULL: nothing */
    const char *throws;           /* what building a graph throws */
    const char *fails_to_execute; /* what execute says */
    int64_t workspace;            /* bytes that a graph wants */
    int computes; /* it does, and wants what the real headers count too */
    int zeroes;   /* it computes, and every result is 0 */
    /* set by the stand-in */
    int handles, built, executed;
    int is_backward, is_deterministic; /* the last graph that was built */
    const void *stream;                /* the last that was set */
    /* threads between set_stream and the end of execute, and how often one met
     * another there: the handle has one stream */
    int inside, overlaps;
};

#ifdef __cplusplus
extern "C" {
#endif
extern struct cudnn_standin cudnn_standin; /* the test's */
#ifdef __cplusplus
}
#endif
