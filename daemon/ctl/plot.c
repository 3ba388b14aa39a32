#include "daemon/ctl/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- curves --- */

/* A server's number or a file's: so far from the ends of a double's range that
 * sums and differences of a whole curve stay finite. NaN stays. */
static double bounded_value(const json_t *json)
{
    double value = json_number_value(json);
    return value > 1e300 ? 1e300 : value < -1e300 ? -1e300 : value;
}

struct curve curve_of(const json_t *series)
{
    json_t *steps = json_object_get(series, "step"),
           *values = json_object_get(series, "value");
    size_t count = json_array_size(steps);
    struct curve curve = {0};
    if (count > json_array_size(values))
        count = json_array_size(values);
    curve.x = calloc(count + 1, sizeof *curve.x);
    curve.y = calloc(count + 1, sizeof *curve.y);
    for (size_t i = 0; curve.x && curve.y && i < count; i++) {
        json_t *step = json_array_get(steps, i),
               *value = json_array_get(values, i);
        if (!json_is_number(step) || !json_is_number(value))
            continue;
        curve.x[curve.count] = bounded_value(step);
        curve.y[curve.count++] = bounded_value(value);
    }
    return curve;
}

void curve_fini(struct curve *curve)
{
    free(curve->x);
    free(curve->y);
    *curve = (struct curve){0};
}

/* --- the canvas --- */

enum { CANVAS_COLUMNS = 512, CANVAS_ROWS = 128 };

struct canvas { /* cells; dots of a cell are bits */
    int columns, rows;
    int dots_x, dots_y; /* in a cell: 2 x 4, or 1 x 1 */
    unsigned char line[CANVAS_ROWS][CANVAS_COLUMNS];
    unsigned char mark[CANVAS_ROWS][CANVAS_COLUMNS]; /* of plot->dots */
};

struct range {
    double x0, x1, y0, y1;
    bool is_log;
};

/* Bits of U+2800 by (row, column) of a cell. */
static const unsigned char braille[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

static void set_dot(struct canvas *canvas, int x, int y)
{
    int column = x / canvas->dots_x, row = y / canvas->dots_y;
    if (x < 0 || y < 0 || column >= canvas->columns || row >= canvas->rows)
        return;
    canvas->line[row][column] |=
            canvas->dots_x == 1
                    ? 1
                    : braille[y % canvas->dots_y][x % canvas->dots_x];
}

static double height_of(const struct range *range, double value)
{
    return range->is_log ? log(value) : value;
}

static bool is_drawn(const struct range *range, double value)
{
    return isfinite(value) && (!range->is_log || value > 0);
}

/* 0 to 1, whatever values at the ends of a double's range give. */
static double clamped(double share)
{
    return share > 0 ? fmin(share, 1) : 0;
}

static void place(
        const struct canvas *canvas, const struct range *range, double x,
        double y, int *x_out, int *y_out)
{
    double width = canvas->columns * canvas->dots_x - 1,
           height = canvas->rows * canvas->dots_y - 1;
    double right = range->x1 > range->x0 ? range->x1 - range->x0 : 1;
    double top = range->y1 > range->y0 ? range->y1 - range->y0 : 1;
    double up = (height_of(range, y) - range->y0) / top;
    double along = (x - range->x0) / right;
    if (!(range->y1 > range->y0))
        up = 0.5; /* a flat line: in the middle */
    *x_out = (int)lround(clamped(along) * width);
    *y_out = (int)lround((1 - clamped(up)) * height);
}

static void draw_line(struct canvas *canvas, int x0, int y0, int x1, int y1)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double share = steps ? (double)i / steps : 0;
        set_dot(canvas, x0 + (int)lround(share * (x1 - x0)),
                y0 + (int)lround(share * (y1 - y0)));
    }
}

/* A line through the points, or a mark in the cell of each. */
static void draw_curve(
        struct canvas *canvas, const struct range *range,
        const struct curve *curve, bool is_line)
{
    int last_x = 0, last_y = 0;
    bool has_last = false;
    for (int i = 0; i < curve->count; i++) {
        int x, y;
        if (!is_drawn(range, curve->y[i]))
            continue;
        place(canvas, range, curve->x[i], curve->y[i], &x, &y);
        int column = x / canvas->dots_x, row = y / canvas->dots_y;
        bool is_inside = column >= 0 && column < canvas->columns && row >= 0 &&
                         row < canvas->rows;
        if (is_line)
            draw_line(
                    canvas, has_last ? last_x : x, has_last ? last_y : y, x, y);
        else if (is_inside)
            canvas->mark[row][column] = 1;
        last_x = x;
        last_y = y;
        has_last = true;
    }
}

static void widen(struct range *range, const struct curve *curve)
{
    for (int i = 0; i < curve->count; i++) {
        if (!is_drawn(range, curve->y[i]))
            continue;
        double height = height_of(range, curve->y[i]);
        range->x0 = fmin(range->x0, curve->x[i]);
        range->x1 = fmax(range->x1, curve->x[i]);
        range->y0 = fmin(range->y0, height);
        range->y1 = fmax(range->y1, height);
    }
}

static void print_cell(
        const struct look *look, const struct canvas *canvas, int row,
        int column, FILE *out)
{
    unsigned char dots = canvas->line[row][column];
    if (canvas->mark[row][column]) {
        fprintf(out, "%s%s%s", look_style(look, LOOK_WARN),
                look->has_utf8 ? "●" : "o", look_style(look, LOOK_PLAIN));
    } else if (!dots) {
        fputc(' ', out);
    } else if (canvas->dots_x == 1) {
        fputc('*', out);
    } else {
        /* U+2800 + dots in UTF-8 */
        fputc(0xe2, out);
        fputc(0xa0 | dots >> 6, out);
        fputc(0x80 | (dots & 0x3f), out);
    }
}

static void print_cells(
        const struct look *look, const struct canvas *canvas, int row,
        FILE *out)
{
    int last = canvas->columns - 1;
    while (last >= 0 && !canvas->line[row][last] && !canvas->mark[row][last])
        last--;
    if (last < 0)
        return;
    fputs(look_style(look, LOOK_ACCENT), out);
    for (int c = 0; c <= last; c++) {
        print_cell(look, canvas, row, c, out);
        if (canvas->mark[row][c])
            fputs(look_style(look, LOOK_ACCENT), out);
    }
    fputs(look_style(look, LOOK_PLAIN), out);
}

/* --- axes --- */

/* 1, 2 or 5 times a power of ten, so that at most `count` fit. */
static double nice_step(double span, int count)
{
    double step = span / (count > 1 ? count : 1);
    double power = pow(10, floor(log10(step)));
    double digit = step / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

static void label_of(double value, double step, char *out)
{
    int digits = step > 0 ? (int)ceil(-log10(step) - 1e-9) : 2;
    double size = fabs(value);
    if (size >= 1e6 || (size > 0 && size < 1e-4) || digits > 6)
        snprintf(out, TEXT_SHORT, "%.2e", value);
    else
        snprintf(out, TEXT_SHORT, "%.*f", digits < 0 ? 0 : digits, value);
}

static void step_label(double step, char *out)
{
    snprintf(out, TEXT_SHORT, fabs(step) < 1e15 ? "%.0f" : "%.2e", step);
}

enum { LABEL_LEAST = 4 };

/* Labels of the rows that have one: (rows) texts, "" for none. */
static void label_rows(
        const struct range *range, int rows, char labels[][TEXT_SHORT])
{
    for (int r = 0; r < rows; r++)
        labels[r][0] = '\0';
    if (!(range->y1 > range->y0)) {
        double value = range->is_log ? exp(range->y0) : range->y0;
        label_of(value, fabs(value) / 100, labels[rows / 2]);
        return;
    }
    double span = range->y1 - range->y0;
    if (range->is_log) { /* the value of every third row */
        for (int r = 0; r < rows; r += 3) {
            double value =
                    exp(range->y1 - span * r / (rows > 1 ? rows - 1 : 1));
            label_of(value, value / 100, labels[r]);
        }
        return;
    }
    double step = nice_step(span, rows / 2), first = ceil(range->y0 / step);
    for (int i = 0; i <= 2 * rows; i++) {
        double at = (first + i) * step;
        double row = (range->y1 - at) / span * (rows - 1);
        if (row > -0.5 && row < rows - 0.5)
            label_of(
                    fabs(at) < step / 1e6 ? 0 : at, step,
                    labels[(int)lround(row)]);
    }
}

static void print_x_axis(
        const struct look *look, const struct range *range, int columns,
        int label_columns, FILE *out)
{
    char first[TEXT_SHORT], last[TEXT_SHORT], middle[TEXT_SHORT];
    fprintf(out, "%*s %s", label_columns, "", look->has_utf8 ? "└" : "+");
    for (int i = 0; i < columns; i++)
        fputs(look->has_utf8 ? "─" : "-", out);
    step_label(range->x0, first);
    step_label(range->x1, last);
    step_label((range->x0 + range->x1) / 2, middle);
    int used = (int)(strlen(first) + strlen(last));
    fprintf(out, "\n%*s  %s", label_columns, "", first);
    if (range->x1 > range->x0 && columns > used + (int)strlen(middle) + 12) {
        int at = columns / 2 - (int)strlen(middle) / 2;
        fprintf(out, "%*s%s", at - (int)strlen(first), "", middle);
        fprintf(out, "%*s\n", columns - at - (int)strlen(middle), last);
    } else if (range->x1 > range->x0 && columns > used) {
        fprintf(out, "%*s\n", columns - (int)strlen(first), last);
    } else {
        fputc('\n', out);
    }
}

static int bounded(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

/* The legend ends where the row ends; a row that comes so far has none. */
static void print_legend(
        const struct look *look, const struct canvas *canvas,
        const char *legend, FILE *out)
{
    int last = canvas->columns, width = text_width(legend);
    while (last > 0 && !canvas->line[0][last - 1] && !canvas->mark[0][last - 1])
        last--;
    if (canvas->columns - last < width + 2)
        return;
    fprintf(out, "%*s%s%s%s", canvas->columns - last - width, "",
            look_style(look, LOOK_DIM), legend, look_style(look, LOOK_PLAIN));
}

static void print_canvas(
        const struct look *look, const struct plot *plot, struct canvas *canvas,
        const struct range *range, FILE *out)
{
    char labels[CANVAS_ROWS][TEXT_SHORT];
    int width = LABEL_LEAST;
    label_rows(range, canvas->rows, labels);
    for (int r = 0; r < canvas->rows; r++)
        width = (int)strlen(labels[r]) > width ? (int)strlen(labels[r]) : width;
    canvas->columns = bounded(plot->columns - width - 2, 4, CANVAS_COLUMNS);
    draw_curve(canvas, range, &plot->line, true);
    draw_curve(canvas, range, &plot->dots, false);
    for (int r = 0; r < canvas->rows; r++) {
        fprintf(out, "%*s %s", width, labels[r],
                !look->has_utf8 ? (labels[r][0] ? "+" : "|")
                : labels[r][0]  ? "┤"
                                : "│");
        print_cells(look, canvas, r, out);
        if (r == 0 && plot->legend)
            print_legend(look, canvas, plot->legend, out);
        fputc('\n', out);
    }
    print_x_axis(look, range, canvas->columns, width, out);
}

void plot_draw(const struct look *look, const struct plot *plot, FILE *out)
{
    struct range range = {
            INFINITY, -INFINITY, INFINITY, -INFINITY, plot->is_log};
    struct canvas *canvas = calloc(1, sizeof *canvas);
    if (!canvas)
        return;
    canvas->rows = bounded(plot->rows - 2, 1, CANVAS_ROWS);
    canvas->dots_x = look->has_utf8 ? 2 : 1;
    canvas->dots_y = look->has_utf8 ? 4 : 1;
    widen(&range, &plot->line);
    widen(&range, &plot->dots);
    if (isfinite(range.x0))
        print_canvas(look, plot, canvas, &range, out);
    else
        fputs("no values yet\n", out);
    free(canvas);
}

void plot_sparkline(
        const struct look *look, const struct curve *curve, int columns,
        FILE *out)
{
    static const char *const heights[] = {"▁", "▂", "▃", "▄",
                                          "▅", "▆", "▇", "█"};
    static const char marks[] = "_.-=+*#@";
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < curve->count; i++)
        if (isfinite(curve->y[i])) {
            least = fmin(least, curve->y[i]);
            most = fmax(most, curve->y[i]);
        }
    int cells = curve->count < columns ? curve->count : columns;
    for (int c = 0; c < cells; c++) { /* the mean of each stretch */
        int from = (int)((long)c * curve->count / cells),
            to = (int)((long)(c + 1) * curve->count / cells), count = 0;
        double sum = 0;
        for (int i = from; i < to; i++)
            if (isfinite(curve->y[i])) {
                sum += curve->y[i];
                count++;
            }
        double share = count && most > least
                               ? (sum / count - least) / (most - least)
                               : 0;
        int height = (int)(share * 7.999);
        if (!count)
            fputc(' ', out);
        else if (look->has_utf8)
            fputs(heights[height], out);
        else
            fputc(marks[height], out);
    }
}
