#include "daemon/state/series.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>

static json_int_t step_at(json_t *json, size_t i)
{
    return json_integer_value(json_array_get(json_object_get(json, "step"), i));
}

static double value_at(json_t *json, size_t i)
{
    return json_real_value(json_array_get(json_object_get(json, "value"), i));
}

static size_t length(json_t *json)
{
    return json_array_size(json_object_get(json, "step"));
}

Test(history, short_series_come_back_whole_and_since_cuts_them)
{
    struct history history = {0};
    for (int i = 1; i <= 100; i++)
        history_add(&history, i, i == 50 ? NAN : i / 4.0);
    history_add(&history, 100, 7); /* a step twice */
    history_add(&history, 99, 7);
    cr_expect_eq(history.count, 99);
    json_t *json = history_json(&history, 0, 1000);
    cr_expect_eq(length(json), 99);
    cr_expect_eq(step_at(json, 49), 51);
    cr_expect_eq(value_at(json, 98), 25.0);
    json_decref(json);
    json = history_json(&history, 97, 1000);
    cr_expect_eq(length(json), 3);
    cr_expect_eq(step_at(json, 0), 98);
    json_decref(json);
    json = history_json(&history, 100, 1000);
    cr_expect_eq(length(json), 0);
    json_decref(json);
    history_fini(&history);
}

Test(history, a_million_steps_take_bounded_memory_and_keep_every_spike)
{
    struct history history = {0};
    int found = 0;
    for (int i = 1; i <= 1000000; i++)
        history_add(&history, i, i % 1000 == 777 ? 1000 + i : sin(i / 5000.0));
    cr_expect_leq(history.count, HISTORY_POINTS_MAX);
    cr_expect_geq(history.count, HISTORY_POINTS_MAX / 4);
    for (int i = 0; i < history.count; i++) {
        found += history.points[i].value > 500;
        cr_assert(
                i == 0 || history.points[i].step > history.points[i - 1].step);
        if (history.points[i].value > 500)
            cr_assert_eq(
                    history.points[i].value,
                    1000.0 + (double)history.points[i].step);
    }
    cr_expect_eq(found, 1000, "%d spikes", found);
    history_fini(&history);
}

Test(history, an_answer_has_at_most_so_many_points_and_its_extremes)
{
    struct history history = {0};
    static const int sizes[] = {1, 2, 3, 10, 999, 5000, 10000};
    for (int i = 1; i <= 10000; i++)
        history_add(&history, i, i == 1234 ? -9 : i == 4321 ? 99 : 1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        json_auto_t *json = history_json(&history, 0, sizes[s]);
        size_t count = length(json);
        bool low = false, high = false;
        cr_expect_leq(count, (size_t)sizes[s]);
        cr_expect_eq(step_at(json, count - 1), 10000);
        for (size_t i = 0; i < count; i++) {
            low = low || value_at(json, i) == -9;
            high = high || value_at(json, i) == 99;
            cr_assert(i == 0 || step_at(json, i) > step_at(json, i - 1));
        }
        if (sizes[s] >= 3)
            cr_expect(low && high, "of %d", sizes[s]);
    }
    history_fini(&history);
}

Test(history, names_are_found)
{
    const char *name;
    for (int i = 0; (name = run_series_name(i)); i++)
        cr_expect_eq(run_series_find(name), i);
    cr_expect_eq(run_series_find("train/los"), -1);
    cr_expect_eq(run_series_find(""), -1);
}

static const struct history *series_of(
        const struct history *rows, const char *name)
{
    return &rows[run_series_find(name)];
}

Test(history, rows_of_an_earlier_process_are_read_up_to_the_step_resumed)
{
    struct scratch scratch;
    static const char text[] =
            "{\"step\": 1, \"loss\": 5.5, \"grad_norm\": null, "
            "\"phase_seconds\": {\"forward\": 0.25}, "
            "\"offload\": {\"wait_seconds\": {\"down\": 0.5, \"up\": 0.25}}}\n"
            "{\"step\": 2, \"loss\": 5.25}\n"
            "{\"step\": 2, \"eval_loss\": 5.0}\n"
            "{\"step\": 3, \"loss\": 4.0}\n"
            "{\"step\": 4, \"lo";
    scratch_init(&scratch);
    const char *path =
            scratch_file(&scratch, "metrics.jsonl", text, sizeof text - 1);
    struct history *rows = series_read(path, 2);
    cr_assert_not_null(rows);
    cr_expect_eq(series_of(rows, "train/loss")->count, 2);
    cr_expect_eq(series_of(rows, "train/grad_norm")->count, 0);
    cr_expect_eq(series_of(rows, "perf/forward")->points[0].value, 0.25);
    cr_expect_eq(series_of(rows, "eval/loss")->points[0].step, 2);
    cr_expect_eq(series_of(rows, "perf/offload_wait")->count, 1);
    cr_expect_eq(series_of(rows, "perf/offload_wait")->points[0].value, 0.75);
    series_free(rows);
    rows = series_read(path, 100);
    cr_expect_eq(series_of(rows, "train/loss")->count, 3);
    series_free(rows);
    rows = series_read("/nonexistent", 1);
    cr_expect_eq(series_of(rows, "train/loss")->count, 0);
    series_free(rows);
    scratch_fini(&scratch);
}
