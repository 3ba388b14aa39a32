/* trace.h - what the next steps spend their time on, as a Chrome trace.
 * Internal to train.
 *
 *   trace_begin   each rank takes memory for the spans of `steps` steps
 *   (steps)       spans_add; the model adds those of its units (model_hooks)
 *   trace_end     the ranks' spans go to rank 0, one rank after the other, and
 *                 from there to output_dir/profile-STEP.json, which
 *                 chrome://tracing and ui.perfetto.dev read: pid is the rank,
 *                 tid the thread. Source: "Trace Event Format", the complete
 *                 events ("X": ts and dur in microseconds) and metadata ("M")
 *
 *     step > data | forward > layer > gather  | backward > .. | reduce | ..
 *
 * Ranks of one host have one clock; those of several are laid over each other
 * at a barrier of trace_begin. What is computed stays as it is, bit for bit. */
#pragma once

#include "base/spans.h"

struct trainer;
struct trace;

/* Collective; from the next step on. ZD_ERR_USAGE (E1031) on all ranks while
 * one is running. */
enum zd_status trace_begin(struct trainer *trainer, int steps);
/* A step was made. True when that was the last one to trace. */
bool trace_step(struct trainer *trainer);
/* Collective: writes what there is and forgets it; path_out: (PATH_MAX). ZD_OK
 * and "" when nothing is traced. */
enum zd_status trace_end(struct trainer *trainer, char *path_out);
/* Without writing. NULL is accepted. */
void trace_destroy(struct trace *trace);

/* Of this rank; NULL while nothing is traced. */
struct spans *trace_spans(const struct trace *trace);
