/* test_job_cases.c - the jobs of cases.txt: each mistake is told with its
 * place, values are what was written, and what is printed reads back as itself.
 */
#include "tests/daemon/job/job_case.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { CASE_BYTES = 4096 };

struct row {
    char head[CASE_BYTES], text[CASE_BYTES];
    bool is_there;
};

static void add_line(struct row *row, const char *line)
{
    const char *gid = strstr(line, "$GID");
    char *to = strncmp(line, "== ", 3) == 0 ? row->head : row->text;
    size_t used = strlen(to);
    if (gid)
        snprintf(
                to + used, CASE_BYTES - used, "%.*s%d%s", (int)(gid - line),
                line, (int)getegid(), gid + 4);
    else
        snprintf(to + used, CASE_BYTES - used, "%s", line);
}

/* The next case; the line of the one after it is left in `line`. */
static struct row next_row(FILE *file, char line[CASE_BYTES])
{
    struct row row = {.is_there = line[0] != '\0'};
    add_line(&row, line);
    while (fgets(line, CASE_BYTES, file)) {
        if (strncmp(line, "== ", 3) == 0)
            return row;
        if (line[0] != '#')
            add_line(&row, line);
    }
    line[0] = '\0';
    return row;
}

static bool says(const struct problem *problem, const char *text)
{
    return strstr(problem->what, text) ||
           (problem->label && strstr(problem->label, text)) ||
           (problem->help && strstr(problem->help, text));
}

static void expect_problem(const struct job_case *c, struct row *row)
{
    char code[8], words[CASE_BYTES];
    int line, column;
    cr_assert_eq(
            sscanf(row->head, "== %7s %d:%d %4095[^\n]", code, &line, &column,
                   words),
            4, "%s", row->head);
    cr_assert_eq(c->problems->count, 1, "%s%s", row->head, row->text);
    const struct problem *got = &c->problems->items[0];
    char *help = strstr(words, " || ");
    if (help)
        *help = '\0';
    cr_expect_str_eq(got->code, code, "%s: %s", row->text, got->what);
    cr_expect(
            got->place.line == line && (!column || got->place.column == column),
            "%s: told at %d:%d", row->text, got->place.line, got->place.column);
    cr_expect(says(got, words), "%s: %s, %s", row->text, got->what, got->label);
    if (help && strcmp(help + 4, "-") == 0)
        cr_expect_null(got->help, "%s: %s", row->text, got->help);
    else if (help)
        cr_expect(
                got->help && strstr(got->help, help + 4), "%s: %s", row->text,
                got->help);
}

/* "optim.name = "adamw" @ job.toml:2"; without a value, or without an origin */
static void expect_value(const json_t *values, char *want)
{
    char *origin = strstr(want, " @ "), key[80];
    if (origin)
        *origin = '\0';
    size_t length = strcspn(want, " ");
    cr_assert_lt(length, sizeof key);
    memcpy(key, want, length);
    key[length] = '\0';
    char *value = strstr(want, " = ");
    const json_t *row = json_object_get(values, key);
    char *got = json_dumps(
            json_object_get(row, "value"),
            JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const char *from = json_string_value(json_object_get(row, "origin"));
    if (value)
        cr_expect_str_eq(got, value + 3, "%s", want);
    if (origin)
        cr_expect(strstr(from, origin + 3), "%s: %s", want, from);
    free(got);
}

static void expect_same_printed(const struct job_case *c)
{
    struct job_case again = {0};
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    job_print(c->job, stream);
    fclose(stream);
    scratch_init(&again.scratch);
    job_case_load(&again, "other.toml", text, NULL, 0, 0);
    cr_expect_eq(again.status, ZD_OK, "%s", text);
    cr_expect_str_eq(
            job_options(again.job)->digest, job_options(c->job)->digest, "%s",
            text);
    free(text);
    job_case_fini(&again);
}

static void expect_valid(const struct job_case *c, struct row *row)
{
    json_t *json = job_json(c->job);
    char *rest = row->head + strlen("== ok"), *end;
    cr_assert_eq(
            c->status, ZD_OK, "%s: %s", row->text,
            c->problems->count ? c->problems->items[0].what : "");
    rest[strcspn(rest, "\n")] = '\0';
    for (; *rest; rest = end ? end + 3 : rest + strlen(rest)) {
        rest += strspn(rest, " ");
        if ((end = strstr(rest, " || ")))
            *end = '\0';
        expect_value(json_object_get(json, "values"), rest);
    }
    json_decref(json);
    expect_same_printed(c);
}

Test(job_cases, each_is_told_as_it_says)
{
    FILE *file = fopen("tests/daemon/job/cases.txt", "r");
    char line[CASE_BYTES];
    struct row row;
    int count = 0;
    cr_assert(file);
    while (fgets(line, sizeof line, file) && strncmp(line, "== ", 3) != 0) {
    }
    while ((row = next_row(file, line)).is_there) {
        struct job_case c;
        job_case_init(&c, row.text);
        if (strncmp(row.head, "== ok", 5) == 0)
            expect_valid(&c, &row);
        else
            expect_problem(&c, &row);
        job_case_fini(&c);
        count++;
    }
    cr_expect_gt(count, 150);
    fclose(file);
}
