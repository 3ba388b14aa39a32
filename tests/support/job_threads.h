/* job_threads.h - run a whole job with its ranks as threads of this process,
 * over comm_local: everything that `mpirun zerod` does but MPI. For programs
 * that print TAP; only the main thread reports. */
#pragma once

#include "tests/support/tap.h"
#include "train/train.h"

/* Run `path` (relative to the source root, which is the working directory) on
 * `world` ranks. `sets`: "section.key=value" strings, NULL-terminated;
 * output_dir, logs and the cache are put below `dir` unless set. Returns the
 * worst status; its record, if any, is this thread's. */
enum zd_status job_threads_run(
        const char *path, const char *const *sets, int world, const char *dir);

/* The same, with settings as words of the text; false: it failed. */
bool job_runs(
        const char *path, const char *dir, int world, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* The same with rank 0 observed; `observer` may be NULL. */
bool job_runs_observed(
        const char *path, const char *dir, int world,
        const struct train_observer *observer, const char *format, ...)
        __attribute__((format(printf, 5, 6)));

/* The same with rank 0 observed (and, with observer->control, commanded). */
enum zd_status job_threads_run_observed(
        const char *path, const char *const *sets, int world, const char *dir,
        const struct train_observer *observer);

/* Rows of DIR/out/metrics.jsonl that have `key`, in order; the value of `key`
 * (NaN for null). The caller frees *values_out. */
int job_threads_column(const char *dir, const char *key, double **values_out);

int rows_of(const char *dir, const char *key);

/* Are the columns of two runs equal to the bit, and of `rows` rows (0: of as
 * many as there are, but some)? */
bool same_column(const char *a, const char *b, const char *key, int rows);
/* The same of losses and of norms. */
bool same_training(const char *a, const char *b, int rows);
/* The largest relative difference of two runs' columns; infinite where one has
 * fewer rows, or none. What is NaN in both is no difference. */
double column_difference(const char *a, const char *b, const char *key);
/* NaN: the column is empty. */
double first_of_column(const char *dir, const char *key);
double last_of_column(const char *dir, const char *key);
/* Of out/checkpoint-STEP; NULL: there is none. New reference. */
json_t *job_manifest(const char *dir, int step);
/* Are both files there, with the same bytes? */
bool same_file(const char *a, const char *b);
/* Have two runs written the same bytes to out/NAME? */
bool same_output(const char *a, const char *b, const char *name);
/* Are the models that two runs exported equal, byte for byte? */
bool same_model(const char *a, const char *b);

/* A fresh folder below /tmp; removed at exit. */
const char *job_threads_dir(void);
