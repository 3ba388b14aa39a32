/* trace_file.h - spans as a Chrome trace: a JSON object with "traceEvents", an
 * event a line. Source: "Trace Event Format", the complete events ("X": ts and
 * dur in microseconds) and the metadata ("M"). Internal to train; rank 0.
 *
 * Written beside and renamed over at its close. A write that fails is told
 * there. A file of NULL: nothing happens. */
#ifndef ZD_TRAIN_REPORT_TRACE_FILE_H
#define ZD_TRAIN_REPORT_TRACE_FILE_H

#include "base/spans.h"

struct trace_file;

struct trace_rank { /* plain bytes: broadcast */
    int rank;
    char host[64];
    uint64_t count, dropped; /* spans */
    double clock;            /* of its host, that the trace calls 0 */
};

enum zd_status trace_file_open(
        const char *path, const char *job, struct trace_file **file_out);
/* Before its spans. */
void trace_file_rank(struct trace_file *file, const struct trace_rank *rank);
void trace_file_spans(
        struct trace_file *file, const struct trace_rank *rank,
        const struct span *spans, size_t count);
enum zd_status trace_file_close(struct trace_file *file);
void trace_file_abandon(struct trace_file *file);

#endif
