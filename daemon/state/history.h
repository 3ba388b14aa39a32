/* history.h - a series of numbers by step, thinned so that memory is bounded:
 * each stretch of steps keeps its smallest and its largest value. */
#pragma once

#include "base/file/json.h"

enum { HISTORY_POINTS_MAX = 16384 };

struct history {   /* one series */
    int64_t *step; /* (capacity), rising */
    double *value;
    int count, capacity;
    double last;    /* value that was added; thinning may have left it out */
    int64_t stride; /* steps that a stretch covers now; 0, 1: nothing thinned */
    int64_t base;   /* steps before the first stretch */
};

/* A value that is not finite, or whose step is not above the last one's, is
 * left out. */
void history_add(struct history *history, int64_t step, double value);
void history_fini(struct history *history);
/* {"step": [..], "value": [..]} of steps above `since`, at most `max` (from 1)
 * points; the last one is always there. New reference. */
json_t *history_json(const struct history *history, int64_t since, int max);
