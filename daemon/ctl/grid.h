/* grid.h - a table on the screen: columns as wide as they need, and where there
 * is no room for all, long cells are cut and then those columns that matter
 * least are left out. */
#ifndef ZD_CTL_GRID_H
#define ZD_CTL_GRID_H

#include "daemon/ctl/look.h"

enum { GRID_COLUMNS_MAX = 20 };

struct grid_column {
    const char *title;
    bool is_right; /* numbers */
    int weight;    /* the smallest goes first; the first column never goes */
    int least;     /* cut down to this before any column goes; 0: never cut */
};

struct grid;

/* NULL without memory; the functions below take that. */
struct grid *grid_create(const struct grid_column *columns, int count);
void grid_destroy(struct grid *grid);
/* The next cell of the row, left to right; copied and escaped. NULL: "-". */
void grid_add(
        struct grid *grid, const struct look *look, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Its style (the last cell added). */
void grid_style(struct grid *grid, enum look_style style);
/* One row after another, titles first. look->columns 0: nothing is left
 * out or cut. */
void grid_print(const struct grid *grid, const struct look *look, FILE *out);

#endif
