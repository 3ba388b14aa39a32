#include "train/report/metric.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const void *field_of(
        const struct metric *metric, const void *from, int i)
{
    size_t bytes = metric->type == METRIC_INT    ? sizeof(int)
                   : metric->type == METRIC_TRUE ? sizeof(bool)
                                                 : sizeof(uint64_t);
    return (const char *)from + metric->offset + (size_t)i * bytes;
}

static const char *text_of(const struct metric *metric, const void *from)
{
    const void *field = field_of(metric, from, 0);
    return metric->type == METRIC_CHARS ? field : *(const char *const *)field;
}

static bool is_text(const struct metric *metric)
{
    return metric->type == METRIC_TEXT || metric->type == METRIC_CHARS;
}

static double raw_number(const struct metric *metric, const void *from, int i)
{
    const void *field = field_of(metric, from, i);
    if (metric->value)
        return metric->value(from, i);
    switch (metric->type) {
    case METRIC_REAL:
        return *(const double *)field;
    case METRIC_INT:
        return *(const int *)field;
    case METRIC_INT64:
        return (double)*(const int64_t *)field;
    case METRIC_UINT64:
        return (double)*(const uint64_t *)field;
    case METRIC_TRUE:
        return *(const bool *)field;
    case METRIC_TEXT:
    case METRIC_CHARS:
    case METRIC_HISTOGRAM:
        break;
    }
    return NAN;
}

bool metric_is_known(const struct metric *metric, const void *from, int i)
{
    if (metric->when && !((const char *)from)[metric->when])
        return false;
    if (is_text(metric))
        return text_of(metric, from) != NULL;
    bool is_above_0 =
            metric->flags & METRIC_POSITIVE || metric->type == METRIC_TRUE;
    return !is_above_0 || raw_number(metric, from, i) > 0;
}

double metric_number(const struct metric *metric, const void *from, int i)
{
    return metric_is_known(metric, from, i) ? raw_number(metric, from, i) : NAN;
}

int metric_count(const struct metric *metric)
{
    return (metric->index ? metric->index->count : 1) *
           (metric->inner ? metric->inner->count : 1);
}

void metric_add(const struct metric *metric, void *total, const void *of)
{
    void *sum = (char *)total + metric->offset;
    const void *one = field_of(metric, of, 0);
    if (metric->type == METRIC_REAL)
        *(double *)sum += *(const double *)one;
    else if (metric->type == METRIC_UINT64)
        *(uint64_t *)sum += *(const uint64_t *)one;
    else if (metric->type == METRIC_TRUE)
        *(bool *)sum |= *(const bool *)one;
}

/* --- as JSON --- */

static json_t *json_of(const struct metric *metric, const void *from, int i)
{
    if (!metric_is_known(metric, from, i))
        return json_null();
    if (is_text(metric))
        return json_string(text_of(metric, from));
    double value = raw_number(metric, from, i);
    if (metric->type == METRIC_TRUE)
        return json_true();
    if (metric->type == METRIC_REAL || isnan(value))
        return json_number_or_null(value);
    if (metric->value || metric->type == METRIC_INT)
        return json_integer((json_int_t)value);
    return json_integer(*(const json_int_t *)field_of(metric, from, i));
}

enum { KEY_MAX = 32 };

/* Does *path have an object before its last key? Then removes that key from
 * *path. */
static bool take_key(const char **path, char key[KEY_MAX])
{
    size_t length = strcspn(*path, ".");
    if (!(*path)[length])
        return false;
    assert(length < KEY_MAX);
    memcpy(key, *path, length);
    key[length] = '\0';
    *path += length + 1;
    return true;
}

static bool is_any_known(const struct metric *metric, const void *from)
{
    int i = 0;
    while (i < metric_count(metric) && !metric_is_known(metric, from, i))
        i++;
    return i < metric_count(metric);
}

/* The known metrics of an inner index; NULL: none. */
static json_t *inner_json(const struct metric *metric, const void *from, int i)
{
    int inner = metric->inner->count;
    json_t *object = NULL;
    for (int k = 0; k < inner; k++) {
        if (!metric_is_known(metric, from, i * inner + k))
            continue;
        object = object ? object : json_object();
        json_object_set_new(
                object, metric->inner->name(k),
                json_of(metric, from, i * inner + k));
    }
    return object;
}

static void set_members(
        json_t *object, const struct metric *metric, const void *from)
{
    for (int i = 0; i < metric->index->count; i++) {
        json_t *member = metric->inner ? inner_json(metric, from, i)
                                       : json_of(metric, from, i);
        if (member)
            json_object_set_new(object, metric->index->name(i), member);
    }
}

void metrics_set_json(
        json_t *object, const struct metric_table *table, const void *from,
        bool only_known)
{
    ZD_EACH(metric, table->rows, table->count) {
        const char *path = metric->name;
        char key[KEY_MAX];
        json_t *into = object;
        if (!path || metric->flags & METRIC_SUM ||
            (only_known && !is_any_known(metric, from)))
            continue;
        while (take_key(&path, key)) {
            if (!json_object_get(into, key))
                json_object_set_new(into, key, json_object());
            into = json_object_get(into, key);
        }
        if (metric->index)
            set_members(into, metric, from);
        else
            json_object_set_new(into, path, json_of(metric, from, 0));
    }
}

double metric_of_row(const struct metric *metric, const json_t *row)
{
    const char *path = metric->name;
    char key[KEY_MAX];
    double sum = 0;
    while (take_key(&path, key))
        row = json_object_get(row, key);
    json_t *value = json_object_get(row, path);
    if (json_is_number(value))
        return json_number_value(value);
    if (!json_is_object(value))
        return NAN;
    JSON_MEMBERS(name, member, value)
        sum += json_number_value(member);
    return sum;
}
