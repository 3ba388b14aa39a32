#include "train/report/metrics.h"

#include "base/file/fs.h"
#include "base/must.h"
#include "tests/support/wrap.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char dir[] = "/tmp/zerod-metrics-XXXXXX";
static char path[64];

/* A disk that stands still while a test holds it. */
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

WRAP(ssize_t, pwrite64, int fd, const void *data, size_t bytes, off_t at)
{
    pthread_mutex_lock(&disk);
    pthread_mutex_unlock(&disk);
    return __real_pwrite64(fd, data, bytes, at);
}

static void make_dir(void)
{
    cr_assert(mkdtemp(dir));
    ZD_PRINT(path, "%s/metrics.jsonl", dir);
}

static void remove_dir(void)
{
    fs_remove_tree(dir);
}

TestSuite(train_metrics, .init = make_dir, .fini = remove_dir);

static void write_step(struct file_writer *metrics, int64_t step, double loss)
{
    struct train_step_report report = {.step = step, .loss = loss};
    cr_assert_eq(metrics_add(metrics, metrics_row(&report)), ZD_OK);
}

static char *contents(void)
{
    char *text;
    size_t bytes;
    cr_assert_eq(fs_read_file(path, 64 << 20, &text, &bytes), ZD_OK);
    return text;
}

Test(train_metrics, a_number_comes_back_exactly)
{
    struct file_writer *metrics;
    double loss = 0.1 + 0.2;
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    write_step(metrics, 1, loss);
    file_writer_close(metrics);
    ZD_FREED char *text = contents();
    json_auto_t *row = json_loads(text, 0, NULL);
    cr_expect_eq(json_real_value(json_object_get(row, "loss")), loss);
}

Test(train_metrics, only_fp16_has_a_loss_scale)
{
    struct file_writer *metrics;
    struct train_step_report report = {
            .step = 2,
            .loss = 1,
            .loss_scale = {.scale = 32768},
            .skipped = "overflow"};
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    write_step(metrics, 1, 1);
    cr_assert_eq(metrics_add(metrics, metrics_row(&report)), ZD_OK);
    file_writer_close(metrics);
    char *text = contents(), *second = strchr(text, '\n') + 1;
    cr_expect(strstr(second, "\"loss_scale\":32768.0"), "%s", second);
    cr_expect(strstr(second, "\"skipped\":\"overflow\""), "%s", second);
    second[-1] = '\0';
    cr_expect(!strstr(text, "loss_scale"), "%s", text);
    free(text);
}

Test(train_metrics, what_is_no_number_is_null)
{
    struct file_writer *metrics;
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    write_step(metrics, 1, NAN);
    cr_assert_eq(metrics_eval(metrics, 1, INFINITY), ZD_OK);
    file_writer_close(metrics);
    ZD_FREED char *text = contents();
    cr_expect(strstr(text, "\"loss\":null"));
    cr_expect(strstr(text, "\"eval_loss\":null"));
}

Test(train_metrics, who_adds_a_row_does_not_wait_for_the_disk)
{
    enum { ROWS = 1000 };
    struct file_writer *metrics;
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    pthread_mutex_lock(&disk);
    for (int step = 1; step <= ROWS; step++)
        write_step(metrics, step, step);
    pthread_mutex_unlock(&disk);
    cr_expect_eq(file_writer_sync(metrics), ZD_OK);
    char *text = contents(), *line = text;
    for (int step = 1; step <= ROWS; step++) {
        char begins[32];
        int bytes = ZD_PRINT(begins, "{\"step\":%d,", step);
        cr_assert(line && strncmp(line, begins, (size_t)bytes) == 0);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    cr_expect_str_eq(line, "");
    free(text);
    file_writer_close(metrics);
}

Test(train_metrics, rows_beyond_the_room_are_refused_and_the_others_written)
{
    struct file_writer *metrics;
    ZD_FREED char *long_text = calloc(1, (1 << 20) + 1);
    enum zd_status status = ZD_OK;
    int rows = 0;
    memset(long_text, 'x', 1 << 20);
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    pthread_mutex_lock(&disk);
    while (rows < 100 && status == ZD_OK) {
        status = metrics_add(metrics, json_pack("{s:s}", "row", long_text));
        rows += status == ZD_OK;
    }
    pthread_mutex_unlock(&disk);
    cr_expect_eq(status, ZD_ERR_IO);
    cr_expect_eq(rows, 15, "%d", rows);
    zd_error_clear();
    file_writer_close(metrics);
    ZD_FREED char *text = contents();
    cr_expect_geq(strlen(text), (size_t)rows << 20);
}

Test(train_metrics, resuming_drops_later_rows_and_a_torn_line_only)
{
    struct file_writer *metrics;
    cr_assert_eq(metrics_open(path, 0, &metrics), ZD_OK);
    for (int step = 1; step <= 4; step++)
        write_step(metrics, step, step);
    cr_assert_eq(metrics_eval(metrics, 2, 0.5), ZD_OK);
    file_writer_close(metrics);
    char *before = contents();
    FILE *file = fopen(path, "a");
    fputs("{\"step\":5,\"lo", file);
    fclose(file);

    /* rows up to step 2 are the bytes they were */
    cr_assert_eq(metrics_open(path, 2, &metrics), ZD_OK);
    write_step(metrics, 3, 33);
    file_writer_close(metrics);
    char *after = contents();
    size_t kept = (size_t)(strstr(before, "{\"step\":3") - before);
    cr_expect_eq(memcmp(before, after, kept), 0);
    cr_expect(strstr(after + kept, "33.0"));
    cr_expect_null(strstr(after, "\"step\":4"));
    cr_expect_null(strstr(after, "\"step\":5"));
    free(before);
    free(after);

    /* only the torn line goes when all rows stay */
    file = fopen(path, "a");
    fputs("{\"step\":4", file);
    fclose(file);
    before = contents();
    cr_assert_eq(metrics_open(path, 9, &metrics), ZD_OK);
    file_writer_close(metrics);
    after = contents();
    cr_expect_eq(strlen(after), strlen(before) - strlen("{\"step\":4"));
    free(before);
    free(after);
}
