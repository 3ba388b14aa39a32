#include "daemon/ctl/grid.h"

#include "base/must.h"
#include "daemon/cli/fill.h"

#include <stdlib.h>
#include <string.h>

struct cell {
    char *text; /* safe to print; owned */
    enum look_style style;
};

struct grid {
    const struct grid_column *columns;
    int column_count;
    size_t row_count;
    struct cell *cells; /* (rows, columns), row by row */
};

static const struct cell *cell_of(
        const struct grid *grid, size_t row, int column)
{
    return &grid->cells[row * (size_t)grid->column_count + (size_t)column];
}

static void fill_cells(
        struct grid *grid, const struct look *look, const json_t *rows)
{
    json_t *row;
    size_t r;
    json_array_foreach(rows, r, row)
    {
        for (int c = 0; c < grid->column_count; c++) {
            const struct grid_column *column = &grid->columns[c];
            struct cell *cell = (struct cell *)cell_of(grid, r, c);
            cell->text = fill(look, row, column->cell);
            cell->style = column->style ? column->style(look, row) : LOOK_PLAIN;
        }
    }
}

/* Of a pipe: one long cell does not push what follows it to the right in all
 * rows. */
static int padded_width(const struct grid_column *column, int width)
{
    int most = 2 * column->least;
    return most > 0 && width > most ? most : width;
}

/* Cuts the columns that may be cut until `total` fits; returns the rest. */
static int narrow(
        const struct grid *grid, const struct look *look, int total,
        int *widths)
{
    for (int c = 0; c < grid->column_count && total > look->columns; c++) {
        int least = grid->columns[c].least;
        int spare = least > 0 && widths[c] > least ? widths[c] - least : 0;
        int needed = total - look->columns;
        int cut = needed < spare ? needed : spare;
        widths[c] -= cut;
        total -= cut;
    }
    return total;
}

static bool is_left_out(const struct grid *grid, int column)
{
    bool has_value = !grid->columns[column].is_optional;
    for (size_t r = 0; r < grid->row_count && !has_value; r++) {
        const char *text = cell_of(grid, r, column)->text;
        has_value = text[0] && strcmp(text, "-") != 0;
    }
    return !has_value;
}

/* Widths; 0 for a column that is left out. */
static void choose_widths(
        const struct grid *grid, const struct look *look, int *widths)
{
    int total = -2;
    for (int c = 0; c < grid->column_count; c++) {
        widths[c] = 0;
        if (is_left_out(grid, c))
            continue;
        widths[c] = text_width(grid->columns[c].title);
        for (size_t r = 0; r < grid->row_count; r++) {
            int width = text_width(cell_of(grid, r, c)->text);
            widths[c] = width > widths[c] ? width : widths[c];
        }
        if (look->columns == 0)
            widths[c] = padded_width(&grid->columns[c], widths[c]);
        total += widths[c] + 2;
    }
    if (look->columns > 0)
        total = narrow(grid, look, total, widths);
    while (look->columns > 0 && total > look->columns) {
        int least = -1;
        for (int c = 1; c < grid->column_count; c++)
            if (widths[c] && (least < 0 || grid->columns[c].weight <
                                                   grid->columns[least].weight))
                least = c;
        if (least < 0) { /* the first alone, cut */
            widths[0] = look->columns;
            break;
        }
        total -= widths[least] + 2;
        widths[least] = 0;
    }
}

static void print_cell(
        const struct look *look, const struct grid_column *column,
        const char *text, enum look_style style, int width, bool is_last,
        FILE *out)
{
    int blanks = width - text_width(text);
    if (column->is_right && blanks > 0)
        fprintf(out, "%*s", blanks, "");
    if (style != LOOK_PLAIN)
        fputs(look_style(look, style), out);
    if (look->columns == 0)
        fputs(text, out);
    else
        text_fit(look, text, width, false, out);
    if (style != LOOK_PLAIN)
        fputs(look_style(look, LOOK_PLAIN), out);
    if (!is_last)
        fprintf(out, "%*s", 2 + (column->is_right || blanks < 0 ? 0 : blanks),
                "");
}

static void print_grid(
        const struct grid *grid, const struct look *look, FILE *out)
{
    int widths[GRID_COLUMNS_MAX], last = 0;
    choose_widths(grid, look, widths);
    for (int c = 0; c < grid->column_count; c++)
        last = widths[c] ? c : last;
    for (size_t r = 0; r <= grid->row_count; r++) { /* 0: the titles */
        for (int c = 0; c <= last; c++) {
            const struct grid_column *column = &grid->columns[c];
            const struct cell title = {(char *)column->title, LOOK_BOLD};
            const struct cell *cell = r ? cell_of(grid, r - 1, c) : &title;
            if (widths[c])
                print_cell(
                        look, column, cell->text, cell->style, widths[c],
                        c == last, out);
        }
        fputc('\n', out);
    }
}

void grid_show(
        const struct look *look, const struct grid_column *columns, int count,
        const json_t *rows, FILE *out)
{
    struct grid grid = {
            .columns = columns,
            .column_count = count < GRID_COLUMNS_MAX ? count : GRID_COLUMNS_MAX,
            .row_count = json_array_size(rows)};
    size_t cells = grid.row_count * (size_t)grid.column_count;
    grid.cells = zd_must(calloc(cells + 1, sizeof *grid.cells));
    fill_cells(&grid, look, rows);
    print_grid(&grid, look, out);
    for (size_t i = 0; i < cells; i++)
        free(grid.cells[i].text);
    free(grid.cells);
}
