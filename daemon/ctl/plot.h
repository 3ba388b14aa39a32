/* plot.h - curves in a terminal: braille dots (2 x 4 in a cell), or an asterisk
 * for a cell with dots where the locale has no UTF-8. */
#pragma once

#include "base/file/json.h"
#include "daemon/cli/look.h"

struct curve {     /* all finite */
    double *x, *y; /* (count) x rises */
    int count;
};

/* Of {"step": [..], "value": [..]}; all 0 when it has no points. */
struct curve curve_of(const json_t *series);
void curve_fini(struct curve *curve);

struct plot {
    const char *title; /* the first row, with what the dots are; NULL: none */
    struct curve line; /* drawn through its points */
    struct curve dots; /* beside it, on the same axes; may have none */
    int columns, rows; /* title and axes included */
};

/* Lines end without blanks. Nothing to draw: one line says so. */
void plot_draw(const struct look *look, const struct plot *plot);
