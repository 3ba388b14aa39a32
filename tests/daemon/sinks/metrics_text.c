#include "tests/daemon/sinks/metrics_text.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at;
    int line;
    bool open_metrics;
    char family[96], type[16], unit[32];
    bool has_help, has_type, has_samples;
    char seen[200][96]; /* families */
    int seen_count;
    struct metrics metrics;
};

#define CHECK(reader, condition, ...)                                          \
    do {                                                                       \
        if (!(condition)) {                                                    \
            cr_log_error(__VA_ARGS__);                                         \
            cr_assert(false, "line %d: " #condition, (reader)->line);          \
        }                                                                      \
    } while (0)

/* --- words --- */

static void take_name(struct reader *r, char *out, size_t room)
{
    size_t n = 0;
    while (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == ':') {
        CHECK(r, n + 1 < room, "a name too long");
        out[n++] = *r->at++;
    }
    out[n] = '\0';
    CHECK(r, n > 0 && !isdigit((unsigned char)out[0]), "no name");
}

static void take(struct reader *r, char c)
{
    CHECK(r, *r->at == c, "'%c' and not '%c'", *r->at, c);
    r->at++;
    r->line += c == '\n';
}

static bool takes(struct reader *r, const char *word)
{
    size_t bytes = strlen(word);
    if (strncmp(r->at, word, bytes) != 0)
        return false;
    r->at += bytes;
    return true;
}

static void take_quoted(struct reader *r, char *out, size_t room)
{
    size_t n = 0;
    take(r, '"');
    while (*r->at != '"') {
        char c = *r->at++;
        CHECK(r, c != '\n' && c != '\0', "a value without an end");
        if (c == '\\') {
            c = *r->at++;
            CHECK(r, c == '\\' || c == '"' || c == 'n', "escape \\%c", c);
            if (c == 'n')
                c = '\n';
        }
        CHECK(r, n + 1 < room, "a value too long");
        out[n++] = c;
    }
    out[n] = '\0';
    take(r, '"');
}

static double take_number(struct reader *r)
{
    char *end;
    if (takes(r, "NaN"))
        return NAN;
    if (takes(r, "+Inf"))
        return INFINITY;
    if (takes(r, "-Inf"))
        return -INFINITY;
    CHECK(r, isdigit((unsigned char)*r->at) || *r->at == '-', "no number");
    double value = strtod(r->at, &end);
    r->at = end;
    return value;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

/* --- families --- */

/* Buckets rise, and the last of them is +Inf and the count. */
static void check_histogram(struct reader *r)
{
    double below = 0, bound = -INFINITY, count = -1, inf = -2;
    for (int i = 0; i < r->metrics.count; i++) {
        const struct metric_sample *s = &r->metrics.samples[i];
        if (strcmp(s->family, r->family) != 0)
            continue;
        if (ends_with(s->name, "_bucket")) {
            const char *le = metric_label(s, "le");
            CHECK(r, le, "a bucket without le");
            CHECK(r, strpbrk(le, ".eI"), "le=\"%s\" is not a canonical number",
                  le);
            double next = strcmp(le, "+Inf") == 0 ? INFINITY : strtod(le, NULL);
            CHECK(r, next > bound && s->value >= below, "buckets that fall");
            bound = next;
            below = s->value;
            if (isinf(next))
                inf = s->value;
        }
        if (ends_with(s->name, "_count"))
            count = s->value;
    }
    CHECK(r, inf == count, "%s: +Inf %g, count %g", r->family, inf, count);
}

static void close_family(struct reader *r)
{
    if (!r->family[0])
        return;
    CHECK(r, r->has_help && r->has_type, "%s", r->family);
    CHECK(r, r->has_samples, "%s has no samples", r->family);
    if (strcmp(r->type, "histogram") == 0)
        check_histogram(r);
}

static void enter_family(struct reader *r, const char *name)
{
    if (strcmp(r->family, name) == 0) {
        CHECK(r, !r->has_samples, "%s: metadata after samples", name);
        return;
    }
    close_family(r);
    for (int i = 0; i < r->seen_count; i++)
        CHECK(r, strcmp(r->seen[i], name) != 0, "%s comes twice", name);
    strcpy(r->seen[r->seen_count++], name);
    strcpy(r->family, name);
    r->has_help = r->has_type = r->has_samples = false;
    r->unit[0] = '\0';
}

static void check_type(struct reader *r)
{
    static const char *const types[] = {
            "gauge", "counter", "histogram", "info"};
    bool known = false;
    for (int i = 0; i < (r->open_metrics ? 4 : 3); i++)
        known |= strcmp(r->type, types[i]) == 0;
    CHECK(r, known, "type %s", r->type);
    if (strcmp(r->type, "counter") == 0)
        CHECK(r, ends_with(r->family, "_total") == !r->open_metrics, "%s",
              r->family);
    else
        CHECK(r, !ends_with(r->family, "_total"), "%s", r->family);
}

static void take_metadata(struct reader *r)
{
    char name[96];
    bool help = takes(r, "HELP "), type = !help && takes(r, "TYPE ");
    bool unit = !help && !type && r->open_metrics && takes(r, "UNIT ");
    CHECK(r, help || type || unit, "# %.10s", r->at);
    take_name(r, name, sizeof name);
    enter_family(r, name);
    take(r, ' ');
    if (help) {
        CHECK(r, !r->has_help && *r->at != '\n', "help of %s", name);
        r->has_help = true;
        r->at += strcspn(r->at, "\n");
    } else if (type) {
        CHECK(r, !r->has_type, "type of %s", name);
        take_name(r, r->type, sizeof r->type);
        r->has_type = true;
        check_type(r);
    } else {
        char end[40];
        take_name(r, r->unit, sizeof r->unit);
        snprintf(end, sizeof end, "_%s", r->unit);
        CHECK(r, ends_with(name, end), "%s is not in %s", name, r->unit);
    }
    take(r, '\n');
}

/* --- samples --- */

static void check_name(struct reader *r, const char *name)
{
    size_t length = strlen(r->family);
    CHECK(r, strncmp(name, r->family, length) == 0, "%s in %s", name,
          r->family);
    const char *end = name + length;
    const char *want = "";
    if (r->open_metrics && strcmp(r->type, "counter") == 0)
        want = "_total";
    if (strcmp(r->type, "info") == 0)
        want = "_info";
    if (strcmp(r->type, "histogram") == 0)
        want = ends_with(name, "_bucket") ? "_bucket"
               : ends_with(name, "_sum")  ? "_sum"
                                          : "_count";
    CHECK(r, strcmp(end, want) == 0, "%s of a %s", name, r->type);
}

static bool same_series(
        const struct metric_sample *a, const struct metric_sample *b)
{
    if (strcmp(a->name, b->name) != 0 || a->label_count != b->label_count)
        return false;
    for (int i = 0; i < a->label_count; i++) {
        const char *other = metric_label(b, a->labels[i].name);
        if (!other || strcmp(other, a->labels[i].value) != 0)
            return false;
    }
    return true;
}

static void take_labels(struct reader *r, struct metric_sample *sample)
{
    if (!takes(r, "{"))
        return;
    do {
        struct metric_label *label = &sample->labels[sample->label_count];
        CHECK(r, sample->label_count < METRIC_LABELS_MAX, "so many labels");
        take_name(r, label->name, sizeof label->name);
        CHECK(r, !metric_label(sample, label->name), "%s twice", label->name);
        sample->label_count++;
        take(r, '=');
        take_quoted(r, label->value, sizeof label->value);
    } while (takes(r, ","));
    take(r, '}');
}

static void take_sample(struct reader *r)
{
    struct metrics *all = &r->metrics;
    struct metric_sample sample = {0};
    take_name(r, sample.name, sizeof sample.name);
    check_name(r, sample.name);
    strcpy(sample.family, r->family);
    take_labels(r, &sample);
    take(r, ' ');
    sample.value = take_number(r);
    take(r, '\n');
    if (strcmp(r->type, "counter") == 0 || strcmp(r->type, "histogram") == 0)
        CHECK(r, sample.value >= 0, "%s below 0", sample.name);
    for (int i = 0; i < all->count; i++)
        CHECK(r, !same_series(&all->samples[i], &sample), "%s comes twice",
              sample.name);
    if (all->count == all->capacity) {
        all->capacity = 2 * all->capacity + 64;
        all->samples = realloc(
                all->samples, (size_t)all->capacity * sizeof *all->samples);
    }
    all->samples[all->count++] = sample;
    r->has_samples = true;
}

struct metrics metrics_parse(const char *text, size_t bytes, bool open_metrics)
{
    static struct reader r;
    bool ended = false;
    memset(&r, 0, sizeof r);
    r.at = text;
    r.line = 1;
    r.open_metrics = open_metrics;
    cr_assert_eq(strlen(text), bytes);
    while (*r.at) {
        CHECK(&r, !ended, "text after # EOF");
        if (open_metrics && takes(&r, "# EOF\n"))
            ended = true;
        else if (takes(&r, "# "))
            take_metadata(&r);
        else
            take_sample(&r);
    }
    close_family(&r);
    CHECK(&r, ended == open_metrics, "no # EOF");
    return r.metrics;
}

void metrics_free(struct metrics *metrics)
{
    free(metrics->samples);
    *metrics = (struct metrics){0};
}

const char *metric_label(const struct metric_sample *sample, const char *name)
{
    for (int i = 0; i < sample->label_count; i++)
        if (strcmp(sample->labels[i].name, name) == 0)
            return sample->labels[i].value;
    return NULL;
}

static bool has_labels(const struct metric_sample *sample, const char *labels)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", labels);
    for (char *pair = strtok(copy, ","); pair; pair = strtok(NULL, ",")) {
        char *value = strchr(pair, '=');
        *value++ = '\0';
        const char *found = metric_label(sample, pair);
        if (!found || strcmp(found, value) != 0)
            return false;
    }
    return true;
}

const struct metric_sample *metrics_find(
        const struct metrics *metrics, const char *name, const char *labels)
{
    const struct metric_sample *found = NULL;
    for (int i = 0; i < metrics->count; i++)
        if (strcmp(metrics->samples[i].name, name) == 0 &&
            has_labels(&metrics->samples[i], labels)) {
            if (found)
                return NULL;
            found = &metrics->samples[i];
        }
    return found;
}

bool metrics_has_name(const struct metrics *metrics, const char *name)
{
    for (int i = 0; i < metrics->count; i++)
        if (strcmp(metrics->samples[i].name, name) == 0)
            return true;
    return false;
}
