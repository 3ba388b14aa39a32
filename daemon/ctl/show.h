/* show.h - objects of docs/control.md as text, for any width. */
#pragma once

#include "base/file/json.h"
#include "daemon/cli/look.h"

void show_status(const struct look *look, const json_t *status);
/* One line: "20:33:53 running step 120/400 (30%) loss 2.3100 ..". */
void show_status_line(const struct look *look, const json_t *status);
/* `jobs`: list of statuses, with "name" and "socket" beside. */
void show_jobs(const struct look *look, const json_t *jobs);
void show_ranks(const struct look *look, const json_t *answer);
/* In at most `lines`, 2 or more: the last one then sums up all of them. */
void show_first_ranks(const struct look *look, const json_t *answer, int lines);
void show_memory(const struct look *look, const json_t *answer);
void show_samples(const struct look *look, const json_t *answer);
/* Prompt and text of one. */
void show_sample(const struct look *look, const json_t *sample);
/* Its text alone. */
void show_text(const struct look *look, const json_t *sample);
/* `data` of an event as one line. */
void show_event(const struct look *look, const json_t *event);

/* The status with what templates show of it beside: "words" (its state: "died
 * after step 7"), "percent", "share" (step / max_steps), "phases", "now"; of
 * one that has ended no "eta_seconds". New reference. */
json_t *status_for_show(const struct look *look, const json_t *status);
/* A line from a template, cut at the width of the screen. */
void show_line(
        const struct look *look, enum look_style style, const char *template,
        const json_t *object);
/* The bar of progress, for what status_for_show gives. */
void show_bar(const struct look *look, const json_t *shown);
/* The style of a status's state. */
enum look_style status_style(const struct look *look, const json_t *status);

/* --- grid.c: a table on the screen: columns as wide as they need, and where
 * there is no room for all, long cells are cut and then those columns that
 * matter least are left out. */

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
        const json_t *rows);
