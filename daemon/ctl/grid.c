#include "daemon/ctl/grid.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct cell {
    char *text; /* escaped; owned */
    enum look_style style;
};

struct grid {
    struct grid_column columns[GRID_COLUMNS_MAX];
    int column_count;
    struct cell *cells; /* (rows, columns), row by row */
    size_t cell_count, capacity;
};

struct grid *grid_create(const struct grid_column *columns, int count)
{
    struct grid *grid = calloc(1, sizeof *grid);
    if (!grid || count > GRID_COLUMNS_MAX) {
        free(grid);
        return NULL;
    }
    memcpy(grid->columns, columns, (size_t)count * sizeof *columns);
    grid->column_count = count;
    return grid;
}

void grid_destroy(struct grid *grid)
{
    if (!grid)
        return;
    for (size_t i = 0; i < grid->cell_count; i++)
        free(grid->cells[i].text);
    free(grid->cells);
    free(grid);
}

void grid_add(
        struct grid *grid, const struct look *look, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    if (!grid)
        return;
    if (grid->cell_count == grid->capacity) {
        size_t capacity = 2 * grid->capacity + 64;
        struct cell *grown = realloc(grid->cells, capacity * sizeof *grown);
        if (!grown)
            return;
        grid->cells = grown;
        grid->capacity = capacity;
    }
    va_start(args, format);
    int bytes = vasprintf(&text, format, args);
    va_end(args);
    grid->cells[grid->cell_count++] = (struct cell){
            bytes < 0 ? NULL : text_escape(look, text, (size_t)bytes, false),
            LOOK_PLAIN};
    if (bytes >= 0)
        free(text);
}

void grid_style(struct grid *grid, enum look_style style)
{
    if (grid && grid->cell_count)
        grid->cells[grid->cell_count - 1].style = style;
}

static const char *text_of(const struct grid *grid, size_t row, int column)
{
    size_t at = row * (size_t)grid->column_count + (size_t)column;
    const char *text = at < grid->cell_count ? grid->cells[at].text : NULL;
    return text && text[0] ? text : "-";
}

static size_t row_count(const struct grid *grid)
{
    size_t columns = (size_t)grid->column_count;
    return (grid->cell_count + columns - 1) / columns;
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

/* Widths; 0 for a column that is left out. */
static void choose_widths(
        const struct grid *grid, const struct look *look, int *widths)
{
    int total = -2;
    for (int c = 0; c < grid->column_count; c++) {
        widths[c] = text_width(grid->columns[c].title);
        for (size_t r = 0; r < row_count(grid); r++) {
            int width = text_width(text_of(grid, r, c));
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

void grid_print(const struct grid *grid, const struct look *look, FILE *out)
{
    int widths[GRID_COLUMNS_MAX], last = 0;
    if (!grid)
        return;
    choose_widths(grid, look, widths);
    for (int c = 0; c < grid->column_count; c++)
        last = widths[c] ? c : last;
    for (int c = 0; c <= last; c++)
        if (widths[c])
            print_cell(
                    look, &grid->columns[c], grid->columns[c].title, LOOK_BOLD,
                    widths[c], c == last, out);
    fputc('\n', out);
    for (size_t r = 0; r < row_count(grid); r++) {
        for (int c = 0; c <= last; c++) {
            size_t at = r * (size_t)grid->column_count + (size_t)c;
            if (widths[c])
                print_cell(
                        look, &grid->columns[c], text_of(grid, r, c),
                        at < grid->cell_count ? grid->cells[at].style
                                              : LOOK_PLAIN,
                        widths[c], c == last, out);
        }
        fputc('\n', out);
    }
}
