/* top.h - zerodctl top: a frame, and what is asked for it. */
#pragma once

#include "base/file/json.h"
#include "daemon/cli/look.h"
#include "daemon/ctl/target.h"

/* {"status", "ranks", "history", "log"}: as the paths of that name, history of
 * train/loss and eval/loss, the last lines of the log. Only the status must be
 * there. */
enum zd_status top_get(const struct target *target, json_t **json_out);
/* At most look->rows lines of at most look->columns, whatever the job says. */
void top_show(const struct look *look, const json_t *shown, FILE *out);
