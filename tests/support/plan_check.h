/* plan_check.h - what a run of job_threads did against its plan.json. */
#pragma once

#include "base/file/json.h"

#include <stdbool.h>

/* DIR/out/plan.json; NULL when there is none. New reference. */
json_t *plan_check_open(const char *dir);
/* Every one of `rows` steps in metrics.jsonl sent what was planned. */
bool plan_check_sent(const json_t *plan, const char *dir, int rows);
/* Every arena took what was planned, and its spans are all there is in it. */
bool plan_check_taken(const json_t *plan);
