/* view.h - metrics and plot: what the commands that look (view.c) know of
 * them. */
#ifndef ZD_CTL_VIEW_H
#define ZD_CTL_VIEW_H

#include "daemon/ctl/ctl.h"

enum { WHAT_MAX = 1024 };

enum zd_status metrics_ask(const struct cli_args *args, char what[WHAT_MAX]);
json_t *metrics_select(const struct cli_args *args, json_t *answer);
void metrics_show(const struct look *look, const json_t *shown, FILE *out);
json_t *plot_select(const struct cli_args *args, json_t *answer);
void plot_show(const struct look *look, const json_t *shown, FILE *out);

#endif
