#include "daemon/ctl/plot.h"

#include "base/must.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- curves --- */

/* A server's number or a file's: so far from the ends of a double's range that
 * sums and differences of a whole curve stay finite. */
static double bounded_value(const json_t *json)
{
    return fmax(fmin(json_number_value(json), 1e300), -1e300);
}

struct curve curve_of(const json_t *series)
{
    json_t *steps = json_object_get(series, "step"),
           *values = json_object_get(series, "value");
    size_t count = json_array_size(steps);
    struct curve curve = {0};
    if (count > json_array_size(values))
        count = json_array_size(values);
    curve.x = zd_array(count + 1, sizeof *curve.x);
    curve.y = zd_array(count + 1, sizeof *curve.y);
    for (size_t i = 0; i < count; i++) {
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

enum {
    CANVAS_COLUMNS = 512,
    CANVAS_ROWS = 128,
    DOTS_X = 2, /* of a cell */
    DOTS_Y = 4,
    LABEL_LEAST = 4
};

struct canvas {
    double x0, x1, y0, y1; /* what is drawn */
    int columns, rows;
    unsigned char dots[CANVAS_ROWS][CANVAS_COLUMNS]; /* bits of U+2800 */
    bool marks[CANVAS_ROWS][CANVAS_COLUMNS];         /* of plot->dots */
};

static void widen(struct canvas *canvas, const struct curve *curve)
{
    for (int i = 0; i < curve->count; i++) {
        canvas->x0 = fmin(canvas->x0, curve->x[i]);
        canvas->x1 = fmax(canvas->x1, curve->x[i]);
        canvas->y0 = fmin(canvas->y0, curve->y[i]);
        canvas->y1 = fmax(canvas->y1, curve->y[i]);
    }
}

/* The dot of a value between two ends; `flat`: its share where they are one. */
static int dot_of(double value, double from, double to, double flat, int dots)
{
    double share = to > from ? (value - from) / (to - from) : flat;
    share = share > 0 ? fmin(share, 1) : 0; /* also at the ends of doubles */
    return (int)lround(share * (dots - 1));
}

static void draw_line(struct canvas *canvas, int x0, int y0, int x1, int y1)
{
    static const unsigned char bits[DOTS_Y][DOTS_X] = {
            {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double share = steps ? (double)i / steps : 0;
        int x = x0 + (int)lround(share * (x1 - x0));
        int y = y0 + (int)lround(share * (y1 - y0));
        canvas->dots[y / DOTS_Y][x / DOTS_X] |= bits[y % DOTS_Y][x % DOTS_X];
    }
}

/* A line through the points, or a mark in the cell of each. */
static void draw_curve(
        struct canvas *canvas, const struct curve *curve, bool is_line)
{
    int last_x = 0, last_y = 0;
    for (int i = 0; i < curve->count; i++) {
        int x =
                dot_of(curve->x[i], canvas->x0, canvas->x1, 0,
                       canvas->columns * DOTS_X);
        int y = canvas->rows * DOTS_Y - 1 -
                dot_of(curve->y[i], canvas->y0, canvas->y1, 0.5,
                       canvas->rows * DOTS_Y);
        if (is_line)
            draw_line(canvas, i ? last_x : x, i ? last_y : y, x, y);
        else
            canvas->marks[y / DOTS_Y][x / DOTS_X] = true;
        last_x = x;
        last_y = y;
    }
}

static void print_row(
        const struct look *look, const struct canvas *canvas, int row)
{
    const unsigned char *dots = canvas->dots[row];
    const bool *marks = canvas->marks[row];
    int last = canvas->columns;
    while (last > 0 && !dots[last - 1] && !marks[last - 1])
        last--;
    for (int c = 0; c < last; c++) {
        fputs(look_style(look, marks[c] ? LOOK_WARN : LOOK_ACCENT), look->out);
        if (marks[c])
            fputs(look->has_utf8 ? "●" : "o", look->out);
        else if (!dots[c] || !look->has_utf8)
            fputc(dots[c] ? '*' : ' ', look->out);
        else /* U+2800 + dots in UTF-8 */
            fprintf(look->out, "\xe2%c%c", 0xa0 | dots[c] >> 6,
                    0x80 | (dots[c] & 0x3f));
    }
    fputs(last ? look_style(look, LOOK_PLAIN) : "", look->out);
}

/* --- axes --- */

static void print_x_axis(
        const struct look *look, const struct canvas *canvas, int label_columns)
{
    char first[TEXT_SHORT], last[TEXT_SHORT];
    int at = ZD_PRINT(first, "%.15g", canvas->x0);
    int end = ZD_PRINT(last, "%.15g", canvas->x1);
    fprintf(look->out, "%*s %s", label_columns, "", look->has_utf8 ? "└" : "+");
    for (int i = 0; i < canvas->columns; i++)
        fputs(look->has_utf8 ? "─" : "-", look->out);
    fprintf(look->out, "\n%*s  %s", label_columns, "", first);
    if (canvas->x1 > canvas->x0 && canvas->columns > at + end)
        fprintf(look->out, "%*s", canvas->columns - at, last);
    fputc('\n', look->out);
}

static int bounded(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

static void print_title(const struct look *look, const struct plot *plot)
{
    static const char dots[] = "  o eval/loss";
    ZD_FREED char *safe =
            text_escape(look, plot->title, strlen(plot->title), false);
    fputs(look_style(look, LOOK_BOLD), look->out);
    int used = text_fit(look, safe, plot->columns);
    fputs(look_style(look, LOOK_PLAIN), look->out);
    if (plot->dots.count && used + (int)strlen(dots) <= plot->columns)
        fputs(look->has_utf8 ? "  ● eval/loss" : dots, look->out);
    fputc('\n', look->out);
}

static void print_canvas(
        const struct look *look, const struct plot *plot, struct canvas *canvas)
{
    char labels[CANVAS_ROWS][TEXT_SHORT];
    int width = LABEL_LEAST, gaps = canvas->rows > 1 ? canvas->rows - 1 : 1;
    for (int r = 0; r < canvas->rows; r++) { /* first, middle, last */
        double here = canvas->y1 - (canvas->y1 - canvas->y0) * r / gaps;
        labels[r][0] = '\0';
        if (r == 0 || r == canvas->rows / 2 || r == canvas->rows - 1)
            text_number(here, labels[r]);
        width = (int)strlen(labels[r]) > width ? (int)strlen(labels[r]) : width;
    }
    canvas->columns = bounded(plot->columns - width - 2, 4, CANVAS_COLUMNS);
    draw_curve(canvas, &plot->line, true);
    draw_curve(canvas, &plot->dots, false);
    for (int r = 0; r < canvas->rows; r++) {
        fprintf(look->out, "%*s %s", width, labels[r],
                !look->has_utf8 ? (labels[r][0] ? "+" : "|")
                : labels[r][0]  ? "┤"
                                : "│");
        print_row(look, canvas, r);
        fputc('\n', look->out);
    }
    print_x_axis(look, canvas, width);
}

void plot_draw(const struct look *look, const struct plot *plot)
{
    ZD_FREED struct canvas *canvas = zd_must(calloc(1, sizeof *canvas));
    canvas->x0 = canvas->y0 = INFINITY;
    canvas->x1 = canvas->y1 = -INFINITY;
    canvas->rows =
            bounded(plot->rows - 2 - (plot->title != NULL), 1, CANVAS_ROWS);
    widen(canvas, &plot->line);
    widen(canvas, &plot->dots);
    if (plot->title)
        print_title(look, plot);
    if (isfinite(canvas->x0))
        print_canvas(look, plot, canvas);
    else
        fputs("no values yet\n", look->out);
}
