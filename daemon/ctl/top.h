/* top.h - one frame of `zerodctl top`: at most look->rows lines of at most
 * look->columns, whatever the job says. */
#ifndef ZD_CTL_TOP_H
#define ZD_CTL_TOP_H

#include "base/file/json.h"
#include "daemon/cli/look.h"
#include "daemon/ctl/target.h"

struct top_data {
    const json_t *status;  /* /v1/status */
    const json_t *ranks;   /* /v1/ranks; NULL: not known */
    const json_t *history; /* /v1/metrics/history of train/loss, eval/loss */
    const char *log;       /* the last lines; "" for none */
    const char *message;   /* the result of a key; "" for none */
    bool has_keys;         /* a terminal: the last line names them */
};

void top_frame(const struct look *look, const struct top_data *data, FILE *out);

/* --- view_top.c: a frame as view.c has it --- */

/* {"status", "ranks", "history", "log"}; "message", by who shows it: there are
 * keys. */
enum zd_status top_get(const struct target *target, json_t **json_out);
void top_show(const struct look *look, const json_t *shown, FILE *out);
/* What a key does, and what is said of it; false: leave. */
bool top_key(
        const struct target *target, int key, char *message,
        size_t message_bytes);

#endif
