/* grid.h - a table on the screen: columns as wide as they need, and where there
 * is no room for all, long cells are cut and then those columns that matter
 * least are left out. */
#pragma once

#include "base/file/json.h"
#include "daemon/cli/look.h"

enum { GRID_COLUMNS_MAX = 21 };

struct grid_column {
    const char *title;
    const char *cell; /* a template of fill.h, filled from the row */
    int weight;       /* the smallest goes first; the first column never goes */
    bool is_right;    /* numbers */
    bool is_optional; /* left out where no row has a value */
    int least; /* cut down to this before any column goes; 0: never cut */
    enum look_style (*style)(const struct look *look, const json_t *row);
};

/* `rows`: a list of objects. look->columns 0: nothing is left out or cut. */
void grid_show(
        const struct look *look, const struct grid_column *columns, int count,
        const json_t *rows, FILE *out);
