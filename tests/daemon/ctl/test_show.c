/* What the screens look like: golden files in tests/daemon/ctl/golden, one a
 * screen. ZD_WRITE_GOLDEN=1 writes them anew; look at them before they are
 * committed. Run from the repository's root. */
#include "base/file/fs.h"
#include "base/must.h"
#include "daemon/cli/fill.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/plot.h"
#include "daemon/ctl/show.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define NOW 1795200033.0

static json_t *recorded(const char *name)
{
    char path[128];
    json_t *json;
    ZD_PRINT(path, "tests/daemon/ctl/answers/%s.json", name);
    cr_assert_eq(json_parse_file(path, 1 << 20, &json), ZD_OK);
    return json;
}

static struct look look_at(int columns, bool has_utf8)
{
    return (struct look){
            .columns = columns, .rows = 24, .has_utf8 = has_utf8, .now = NOW};
}

/* No control byte but the line's end, and no line wider than the screen. */
static void check_safe(const struct look *look, const char *text)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        char *copy = strndup(line, length);
        for (size_t i = 0; i < length; i++)
            cr_assert(
                    (unsigned char)line[i] >= 0x20 && line[i] != 0x7f,
                    "byte %02x in: %s", line[i], copy);
        cr_assert(
                look->columns == 0 || text_width(copy) <= look->columns,
                "%d columns of %d: %s", text_width(copy), look->columns, copy);
        free(copy);
        line += length + (line[length] == '\n');
    }
}

static void check_golden(const struct look *look, const char *name, char *text)
{
    char path[128], *wanted;
    size_t bytes;
    check_safe(look, text);
    ZD_PRINT(
            path, "tests/daemon/ctl/golden/%s-%d%s.txt", name, look->columns,
            look->has_utf8 ? "" : "-ascii");
    if (getenv("ZD_WRITE_GOLDEN"))
        cr_assert_eq(fs_write_file(path, text, strlen(text)), ZD_OK);
    cr_assert_eq(
            fs_read_file(path, 1 << 20, &wanted, &bytes), ZD_OK, "%s", path);
    cr_assert_str_eq(text, wanted, "%s differs; it is now:\n%s", path, text);
    free(wanted);
    free(text);
}

typedef void show_fn(const struct look *look, const json_t *answer);

static char *shown(const struct look *look, const json_t *answer, show_fn *show)
{
    char *text;
    size_t bytes;
    struct look to = *look;
    to.out = open_memstream(&text, &bytes);
    show(&to, answer);
    fclose(to.out);
    return text;
}

static void check_show(const char *name, show_fn *show)
{
    static const struct {
        int columns;
        bool has_utf8;
    } looks[] = {{40, true}, {80, true}, {120, true}, {80, false}, {0, true}};
    json_auto_t *answer = recorded(name);
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        struct look look = look_at(looks[i].columns, looks[i].has_utf8);
        check_golden(&look, name, shown(&look, answer, show));
    }
}

static void use_utc(void)
{
    setenv("TZ", "UTC", 1);
}

TestSuite(ctl_show, .init = use_utc);

Test(ctl_show, status_fits_every_width)
{
    check_show("status", show_status);
}

Test(ctl_show, ranks_leave_out_what_has_no_room)
{
    check_show("ranks", show_ranks);
}

Test(ctl_show, axes_beside_shard_are_shown)
{
    struct look look = look_at(80, true);
    json_t *status = recorded("status"), *ranks = recorded("ranks");
    JSON_EACH_AT(i, rank, json_object_get(ranks, "ranks"))
        json_object_set_new(
                rank, "mesh",
                json_pack(
                        "{s:i, s:i, s:i, s:i}", "replicate", 0, "shard", 0,
                        "cp", 0, "tp", (int)i));
    json_object_set_new(
            status, "mesh",
            json_pack(
                    "{s:i, s:i, s:i, s:i}", "replicate", 1, "shard", 1, "cp", 1,
                    "tp", 2));
    char *page = shown(&look, status, show_status),
         *table = shown(&look, ranks, show_ranks);
    cr_assert(
            strstr(page,
                   "  mesh           replicate 1 x shard 1 x cp 1 x tp 2\n"),
            "%s", page);
    cr_assert(strstr(page, "32 samples: 4 per group of 2 ranks, "), "%s", page);
    cr_assert(strstr(table, "\n   1  r0 s0 cp0 tp1  "), "%s", table);
    check_safe(&look, table);
    free(page);
    free(table);
    json_decref(status);
    json_decref(ranks);
}

Test(ctl_show, memory_has_a_row_for_each_place_that_is_used)
{
    check_show("memory", show_memory);
}

Test(ctl_show, jobs_are_one_line_each)
{
    json_t *status = recorded("status");
    json_object_set_new(status, "name", json_string("quick\033[2Jstart"));
    json_auto_t *jobs = json_pack("[o, {s:s}]", status, "name", "mute");
    for (int columns = 40; columns <= 120; columns += 40) {
        struct look look = look_at(columns, true);
        check_golden(&look, "ls", shown(&look, jobs, show_jobs));
    }
}

Test(ctl_show, an_empty_status_shows_dashes)
{
    static const char *const texts[] = {
            "{}", "{\"step\": null, \"state\": 7, \"warnings\": [1, {}], "
                  "\"phase_seconds\": {\"data\": null}, \"pending\": 3}"};
    for (size_t i = 0; i < 2; i++) {
        struct look look = look_at(40, true);
        json_auto_t *status = json_loads(texts[i], 0, NULL);
        static show_fn *const shows[] = {show_status,  show_status_line,
                                         show_ranks,   show_memory,
                                         show_samples, show_event};
        for (size_t s = 0; s < sizeof shows / sizeof shows[0]; s++) {
            ZD_FREED char *text = shown(&look, status, shows[s]);
            cr_assert(s > 1 || strstr(text, "loss"), "%s", text);
        }
    }
}

static void show_top(const struct look *look, const json_t *status)
{
    json_auto_t *frame = json_pack("{s:O}", "status", status);
    top_show(look, frame);
}

Test(ctl_show, numbers_out_of_all_bounds_fit_too)
{
    static const char keys[] =
            "step max_steps eta_seconds loss tokens world started pid "
            "last_checkpoint_time model_flops_per_second elapsed_seconds";
    static const double values[] = {-1e300, 1e300,    1e18,     -1,
                                    5e-324, 1.79e308, -1.79e308};
    struct look look = look_at(40, true);
    json_auto_t *status = recorded("status");
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        char copy[sizeof keys], *rest = strcpy(copy, keys), *key;
        while ((key = strsep(&rest, " ")))
            json_object_set_new(status, key, json_real(values[v]));
        ZD_FREED char *text = shown(&look, status, show_top);
        check_safe(&look, text);
        free(shown(&look, status, show_status));
    }
}

/* --- top --- */

static char *frame_of(
        const struct look *look, const json_t *status, const json_t *ranks,
        const char *log)
{
    json_auto_t *frame = json_pack(
            "{s:O, s:O, s:o, s:o}", "status", status, "ranks", ranks, "history",
            recorded("history"), "log", json_string_nocheck(log));
    return shown(look, frame, top_show);
}

static int lines_of(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static const char log_text[] =
        "2026-11-20T18:40:00Z step 0/400 loss 7.178\n"
        "2026-11-20T18:40:01Z warning: \033[31mred\033[0m and \xc2\x9b"
        "5m \xff \xe2\x80\xae turned\n";

Test(ctl_show, top_fits_40_80_and_120_columns)
{
    json_t *status = recorded("status"), *ranks = recorded("ranks");
    for (int columns = 40; columns <= 120; columns += 40) {
        struct look look = look_at(columns, true);
        look.rows = columns == 120 ? 40 : 24;
        char *text = frame_of(&look, status, ranks, log_text);
        cr_assert(lines_of(text) <= look.rows);
        check_golden(&look, "top", text);
    }
    struct look look = look_at(80, false);
    check_golden(&look, "top", frame_of(&look, status, ranks, log_text));
    json_decref(status);
    json_decref(ranks);
}

Test(ctl_show, top_fits_every_window_and_any_number_of_ranks)
{
    json_t *status = recorded("status"), *two = recorded("ranks");
    json_t *many = recorded("ranks"), *list = json_object_get(many, "ranks");
    for (int i = 2; i < 64; i++)
        json_array_append_new(list, json_deep_copy(json_array_get(list, 1)));
    json_auto_t *none = json_object();
    json_t *const answers[] = {two, many, none};
    for (int columns = 20; columns <= 130; columns += 7)
        for (int rows = 1; rows <= 60; rows += rows < 5 ? 1 : 5)
            for (int i = 0; i < 3; i++) {
                struct look look = look_at(columns, i != 1);
                look.rows = rows;
                ZD_FREED char *text =
                        frame_of(&look, status, answers[i], log_text);
                check_safe(&look, text);
                cr_assert(
                        lines_of(text) <= (rows < 3 ? 3 : rows),
                        "%d lines in %d x %d", lines_of(text), columns, rows);
            }
    json_decref(status);
    json_decref(two);
    json_decref(many);
}

/* --- plot --- */

static char *plot_of(const struct look *look, const struct plot *plot)
{
    char *text;
    size_t bytes;
    struct look to = *look;
    to.out = open_memstream(&text, &bytes);
    plot_draw(&to, plot);
    fclose(to.out);
    return text;
}

Test(ctl_show, plot_has_axes_in_braille_and_ascii)
{
    json_auto_t *history = recorded("history");
    json_t *series = json_object_get(history, "series");
    struct plot plot = {
            .line = curve_of(json_object_get(series, "train/loss")),
            .dots = curve_of(json_object_get(series, "eval/loss")),
            .rows = 14};
    for (int columns = 40; columns <= 120; columns += 40)
        for (int utf8 = 0; utf8 < 2; utf8++) {
            struct look look = look_at(columns, utf8);
            plot.columns = columns;
            check_golden(&look, "plot", plot_of(&look, &plot));
        }
    curve_fini(&plot.line);
    curve_fini(&plot.dots);
}

Test(ctl_show, plot_bears_one_point_a_flat_line_and_wild_values)
{
    double x[] = {1, 2, 3, 4}, flat[] = {3, 3, 3, 3},
           wild[] = {1.7e308, -1.7e308, 0, 5e-320}, zero[] = {0, 0, -1, 0},
           near[] = {1e17, 1e17 + 16, 1e17, 1e17 + 32};
    struct look look = look_at(50, true);
    double *const curves[] = {flat, wild, zero, near};
    for (int i = 0; i < 4; i++)
        for (int count = 0; count <= 4; count++) {
            struct plot plot = {
                    .line = {x, curves[i], count}, .columns = 50, .rows = 8};
            ZD_FREED char *text = plot_of(&look, &plot);
            check_safe(&look, text);
            cr_assert(lines_of(text) <= 9);
        }
}

/* As a server or a folder may give it. */
Test(ctl_show, curves_bear_values_at_the_ends_of_their_range)
{
    static const char *const texts[] = {
            "[1e308, -1e308, 0, 1.7e308]",
            "[1.7e308, 1.7e308, 1.7e308, 1.7e308]",
            "[-1e308, 1e308, -1.7e308, 1]", "[1, 5e-324, -5e-324, 0]",
            "[9223372036854775807, -9223372036854775807, null, \"a\"]"};
    for (size_t i = 0; i < 25; i++) {
        struct look look = look_at(50, i % 2);
        json_auto_t *series = json_pack(
                "{s:o, s:o}", "step", json_loads(texts[i / 5], 0, NULL),
                "value", json_loads(texts[i % 5], 0, NULL));
        struct plot plot = {.line = curve_of(series), .columns = 50, .rows = 8};
        ZD_FREED char *text = plot_of(&look, &plot);
        check_safe(&look, text);
        curve_fini(&plot.line);
    }
}

/* --- templates --- */

Test(ctl_show, templates_are_filled_with_members)
{
    static const char *const rows[][2] = {
            {"{a.b|w} of {x|w}", "3 of -"},
            {"{a.b|w}[ and {x|w}][, {s|s}]", "3, one\\x1b[0m"},
            {"{a.b+c|b}, {x+c|b}", "1.0 KiB, 1021 B"},
            {"{a.b|w} step{a.b|p}, {one|w} box{one|P}", "3 steps, 1 box"},
            {"[{yes|?}yes][{no|?}no]", "yes"},
            {"{list|s}[ {none|s}]", "x, y"},
            {"{list|j} {zero|z}", "[\"x\", \"y\"] -"}};
    struct look look = look_at(80, true);
    json_auto_t *json = json_pack(
            "{s:{s:i}, s:i, s:s, s:i, s:b, s:b, s:[s, s], s:[], s:i, s:n}", "a",
            "b", 3, "c", 1021, "s", "one\033[0m", "one", 1, "yes", 1, "no", 0,
            "list", "x", "y", "none", "zero", 0, "x");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ZD_FREED char *text = fill(&look, json, rows[i][0]);
        cr_assert_str_eq(text, rows[i][1]);
    }
}

/* --- text --- */

Test(ctl_show, text_of_a_job_is_escaped)
{
    struct look look = look_at(80, true), ascii = look_at(80, false);
    static const char raw[] = "a\033[2J\r\n\x7f\xc2\x9b"
                              "é\xff\xe2\x80\xae";
    char *line = text_escape(&look, raw, sizeof raw - 1, false);
    cr_assert_str_eq(line, "a\\x1b[2J\\x0d\\n\\x7f\\u{9b}é\\xff\\u{202e}");
    free(line);
    line = text_escape(&ascii, "é\n", 3, true);
    cr_assert_str_eq(line, "\\u{e9}\n");
    free(line);
}

Test(ctl_show, text_is_cut_by_columns_not_bytes)
{
    struct look look = look_at(80, true);
    ZD_FREED char *text = NULL;
    size_t bytes;
    look.out = open_memstream(&text, &bytes);
    cr_assert_eq(text_fit(&look, "日本語です", 6), 5);
    fclose(look.out);
    cr_assert_str_eq(text, "日本…");
}

Test(ctl_show, numbers_are_short)
{
    char text[TEXT_SHORT];
    cr_assert_str_eq(text_duration(0.22, text), "220ms");
    cr_assert_str_eq(text_duration(59.6, text), "1m00s");
    cr_assert_str_eq(text_duration(3 * 86400 + 7200, text), "3d02h");
    cr_assert_str_eq(text_duration(1.0 / 0.0, text), "-");
    cr_assert_str_eq(text_bytes(1023.9 * 1024 * 1024, text), "1.0 GiB");
    cr_assert_str_eq(text_count(999999, text), "1.0M");
    cr_assert_str_eq(text_count(7, text), "7");
    cr_assert_str_eq(text_number(-2.5e-7, text), "-2.500e-07");
    cr_assert_str_eq(text_number(0.0 / 0.0, text), "-");
}
