/* top.h - one frame of `zerodctl top`: at most look->rows lines of at most
 * look->columns, whatever the job says. */
#ifndef ZD_CTL_TOP_H
#define ZD_CTL_TOP_H

#include "base/file/json.h"
#include "daemon/cli/look.h"

struct top_data {
    const json_t *status;  /* /v1/status */
    const json_t *ranks;   /* /v1/ranks; NULL: not known */
    const json_t *history; /* /v1/metrics/history of train/loss, eval/loss */
    const char *log;       /* the last lines; "" for none */
    const char *message;   /* the result of a key; "" for none */
    bool has_keys;         /* a terminal: the last line names them */
};

void top_frame(const struct look *look, const struct top_data *data, FILE *out);

#endif
