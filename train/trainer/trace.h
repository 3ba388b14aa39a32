/* trace.h - traces the time of the next steps as a Chrome trace. Internal to
 * train.
 *
 *   trace_begin   each rank allocates memory for the spans of `steps` steps
 *   (steps)       spans_add; the model adds those of its units (model_hooks)
 *   trace_end     rank 0 receives the spans of one rank after the other and
 *                 writes output_dir/profile-STEP.json for chrome://tracing and
 *                 ui.perfetto.dev: pid is the rank, tid the thread. Source:
 *                 "Trace Event Format", the complete events ("X": ts and dur in
 *                 microseconds) and metadata ("M")
 *
 *     step > data | forward > layer > gather  | backward > .. | reduce | ..
 *
 * Ranks of one host share a clock; clocks of several hosts are aligned at a
 * barrier of trace_begin. Tracing does not change any computed bit. */
#pragma once

#include "base/spans.h"

struct trainer;
struct trace;

/* Collective; traces from the next step on. ZD_ERR_USAGE (E1031) on all ranks
 * while a trace is running. */
enum zd_status trace_begin(struct trainer *trainer, int steps);
/* Call after each step. True: it was the last one to trace. */
bool trace_step(struct trainer *trainer);
/* Collective: writes the trace and ends it; path_out: (PATH_MAX). ZD_OK and ""
 * if nothing is traced. */
enum zd_status trace_end(struct trainer *trainer, char *path_out);
/* Ends a trace without writing. NULL is accepted. */
void trace_destroy(struct trace *trace);

/* This rank's spans; NULL while nothing is traced. */
struct spans *trace_spans(const struct trace *trace);
