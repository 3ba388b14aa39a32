#include "daemon/ctl/show.h"

#include "base/must.h"
#include "daemon/cli/fill.h"

#include <stdlib.h>
#include <string.h>

struct grid {
    const struct look *look;
    const struct grid_column *columns;
    int column_count;
    const json_t *rows;
    size_t row_count;
    char **cells; /* (rows, columns), row by row; safe to print, owned */
    int widths[GRID_COLUMNS_MAX]; /* 0: left out */
};

static const char *cell_of(const struct grid *grid, size_t row, int column)
{
    return grid->cells[row * (size_t)grid->column_count + (size_t)column];
}

/* Cuts the columns that may be cut until `total` fits; returns the rest. */
static int narrow(struct grid *grid, int total)
{
    for (int c = 0; c < grid->column_count && total > grid->look->columns;
         c++) {
        int least = grid->columns[c].least, *width = &grid->widths[c];
        int spare = least > 0 && *width > least ? *width - least : 0;
        int needed = total - grid->look->columns;
        int cut = needed < spare ? needed : spare;
        *width -= cut;
        total -= cut;
    }
    return total;
}

static bool is_left_out(const struct grid *grid, int column)
{
    bool has_value = !grid->columns[column].is_optional;
    for (size_t r = 0; r < grid->row_count && !has_value; r++) {
        const char *text = cell_of(grid, r, column);
        has_value = text[0] && strcmp(text, "-") != 0;
    }
    return !has_value;
}

/* Leaves out what matters least until `total` fits. */
static void leave_out(struct grid *grid, int total)
{
    while (total > grid->look->columns) {
        int least = 0;
        for (int c = 1; c < grid->column_count; c++)
            if (grid->widths[c] &&
                (!least ||
                 grid->columns[c].weight < grid->columns[least].weight))
                least = c;
        if (!least) { /* the first alone, cut */
            grid->widths[0] = grid->look->columns;
            return;
        }
        total -= grid->widths[least] + 2;
        grid->widths[least] = 0;
    }
}

static void choose_widths(struct grid *grid)
{
    int total = -2;
    for (int c = 0; c < grid->column_count; c++) {
        if (is_left_out(grid, c))
            continue;
        int most = text_width(grid->columns[c].title);
        for (size_t r = 0; r < grid->row_count; r++) {
            int width = text_width(cell_of(grid, r, c));
            most = width > most ? width : most;
        }
        int limit = 2 * grid->columns[c].least;
        /* of a pipe: one long cell does not push what follows it to the right
         * in all rows */
        if (grid->look->columns == 0 && limit > 0 && most > limit)
            most = limit;
        grid->widths[c] = most;
        total += most + 2;
    }
    if (grid->look->columns > 0)
        leave_out(grid, narrow(grid, total));
}

static void print_cell(
        const struct grid *grid, int c, const char *text, enum look_style style)
{
    const struct look *look = grid->look;
    int blanks = grid->widths[c] - text_width(text);
    if (grid->columns[c].is_right && blanks > 0)
        fprintf(look->out, "%*s", blanks, "");
    if (style != LOOK_PLAIN)
        fputs(look_style(look, style), look->out);
    if (look->columns == 0)
        fputs(text, look->out);
    else
        text_fit(look, text, grid->widths[c]);
    if (style != LOOK_PLAIN)
        fputs(look_style(look, LOOK_PLAIN), look->out);
}

/* `r`: from 1; 0: the titles. */
static void print_row(const struct grid *grid, size_t r, int last)
{
    const struct look *look = grid->look;
    for (int c = 0; c <= last; c++) {
        const struct grid_column *column = &grid->columns[c];
        const char *text = r ? cell_of(grid, r - 1, c) : column->title;
        enum look_style style =
                !r ? LOOK_BOLD
                : column->style
                        ? column->style(look, json_array_get(grid->rows, r - 1))
                        : LOOK_PLAIN;
        int blanks = grid->widths[c] - text_width(text);
        if (!grid->widths[c])
            continue;
        print_cell(grid, c, text, style);
        if (c < last)
            fprintf(look->out, "%*s",
                    2 + (column->is_right || blanks < 0 ? 0 : blanks), "");
    }
    fputc('\n', look->out);
}

void grid_show(
        const struct look *look, const struct grid_column *columns, int count,
        const json_t *rows)
{
    struct grid grid = {
            .look = look,
            .columns = columns,
            .column_count = count < GRID_COLUMNS_MAX ? count : GRID_COLUMNS_MAX,
            .rows = rows,
            .row_count = json_array_size(rows)};
    size_t cells = 0;
    int last = 0;
    grid.cells = zd_array(
            grid.row_count * (size_t)grid.column_count, sizeof *grid.cells);
    JSON_EACH(row, rows)
        for (int c = 0; c < grid.column_count; c++)
            grid.cells[cells++] = fill(look, row, columns[c].cell);
    choose_widths(&grid);
    for (int c = 0; c < grid.column_count; c++)
        last = grid.widths[c] ? c : last;
    for (size_t r = 0; r <= grid.row_count; r++)
        print_row(&grid, r, last);
    while (cells > 0)
        free(grid.cells[--cells]);
    free(grid.cells);
}
