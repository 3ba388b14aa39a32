/* metrics_text.h - a strict reader of Prometheus text 0.0.4 and of OpenMetrics
 * 1.0, written from the formats alone. For tests only: what breaks a rule of
 * the format fails the test. */
#ifndef ZD_TESTS_METRICS_TEXT_H
#define ZD_TESTS_METRICS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { METRIC_LABELS_MAX = 12 };

struct metric_label {
    char name[64], value[256];
};

struct metric_sample {
    char name[96];   /* as written */
    char family[96]; /* as in # TYPE */
    struct metric_label labels[METRIC_LABELS_MAX];
    int label_count;
    double value;
};

struct metrics {
    struct metric_sample *samples;
    int count, capacity;
};

struct metrics metrics_parse(const char *text, size_t bytes, bool open_metrics);
void metrics_free(struct metrics *metrics);
/* The only sample `name` that has all of the labels: "rank=1,where=device".
 * NULL: none, or several. */
const struct metric_sample *metrics_find(
        const struct metrics *metrics, const char *name, const char *labels);
const char *metric_label(const struct metric_sample *sample, const char *name);
/* Is `name` one of a sample's? */
bool metrics_has_name(const struct metrics *metrics, const char *name);

#endif
