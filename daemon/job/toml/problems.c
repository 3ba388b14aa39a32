#include "daemon/job/toml/problems.h"

#include "base/must.h"
#include "base/printable.h"
#include "base/text_stream.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_MAX = 200,   /* problems told; the rest is counted */
    EXCERPT_MAX = 100, /* code points of a source line */
};

void problem_add(
        struct problems *problems, enum zd_status status, const char *code,
        struct toml_place place, const char *label, const char *format, ...)
{
    problems->items =
            zd_grow(problems->items, &problems->capacity,
                    (size_t)problems->count + 1, sizeof *problems->items);
    struct problem *problem = &problems->items[problems->count++];
    *problem = (struct problem){.status = status, .place = place};
    ZD_PRINT(problem->code, "%s", code);
    TEXT_OF_ARGS(what, format);
    problem->what = what;
    if (label && label[0])
        problem->label = zd_must(strdup(label));
}

void problem_help(struct problems *problems, const char *format, ...)
{
    struct problem *problem = &problems->items[problems->count - 1];
    TEXT_OF_ARGS(help, format);
    free(problem->help);
    problem->help = help;
}

void problem_take_record(struct problems *problems, struct toml_place place)
{
    const struct zd_error *error = zd_error_get();
    problem_add(
            problems, error->status, error->code, place, NULL, "%s",
            error->what);
    if (error->where[0] && error->status != ZD_ERR_CONFIG)
        problems->items[problems->count - 1].where =
                zd_must(strdup(error->where));
    if (error->help[0])
        problem_help(problems, "%s", error->help);
    zd_error_clear();
}

static int compare(const void *a, const void *b)
{
    const struct toml_place *p = &((const struct problem *)a)->place;
    const struct toml_place *q = &((const struct problem *)b)->place;
    if (p->source != q->source) /* files in the order of their names; those
                                   without a file last */
        return !p->source   ? 1
               : !q->source ? -1
                            : strcmp(p->source->name, q->source->name);
    if (p->line != q->line)
        return p->line < q->line ? -1 : 1;
    return p->column < q->column ? -1 : p->column > q->column;
}

void problems_sort(struct problems *problems)
{
    if (problems->count > 1)
        qsort(problems->items, (size_t)problems->count, sizeof *problems->items,
              compare);
}

/* One column for each character: the caret below an excerpt counts them. */
static void put_escaped(FILE *stream, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        char one[PRINTABLE_MAX];
        size_t used = printable_one(text + i, bytes - i, one);
        if (text[i] == '\t')
            fputc(' ', stream);
        else if (!printable_is(text + i, bytes - i))
            fputc('?', stream);
        else
            fputs(one, stream);
        i += used;
    }
}

/* The bytes of `count` code points from `text`, at most `bytes`. */
static size_t code_points(const char *text, size_t bytes, int count)
{
    size_t i = 0;
    while (i < bytes && count-- > 0) {
        i++;
        while (i < bytes && ((unsigned char)text[i] & 0xc0) == 0x80)
            i++;
    }
    return i;
}

/* Line `number` (from 1) without its end; NULL when there is none. */
static const char *find_line(
        const struct toml_source *source, int number, size_t *bytes_out)
{
    const char *at = source->text, *end = at + source->bytes;
    if (source->bytes >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0)
        at += 3;
    for (int i = 1; i < number; i++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return NULL;
        at = next + 1;
    }
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    size_t bytes = (size_t)((stop ? stop : end) - at);
    if (bytes && at[bytes - 1] == '\r')
        bytes--;
    *bytes_out = bytes;
    return at;
}

static void print_line(
        FILE *stream, const char *before, const char *text, size_t bytes)
{
    fputs(before, stream);
    put_escaped(stream, text, bytes);
    fputc('\n', stream);
}

/* The source line with a caret below, and the label; a long line is cut around
 * the place. false: there is no such line. */
static bool print_excerpt(FILE *stream, const struct problem *problem)
{
    const struct toml_place *place = &problem->place;
    size_t bytes;
    const char *line = find_line(place->source, place->line, &bytes);
    int first = 0; /* code points left out in front */

    if (!line)
        return false;
    int margin = snprintf(NULL, 0, "%d", place->line);
    if (place->column > EXCERPT_MAX * 3 / 4)
        first = place->column - EXCERPT_MAX / 2;
    size_t skipped = code_points(line, bytes, first);
    size_t shown = code_points(line + skipped, bytes - skipped, EXCERPT_MAX);
    fprintf(stream, "%*s |\n%d | ", margin, "", place->line);
    put_escaped(stream, line + skipped, shown);
    int indent = place->column - 1 - first, width = place->width;
    fprintf(stream, "\n%*s | %*s", margin, "", indent, "");
    if (width > EXCERPT_MAX - indent)
        width = EXCERPT_MAX - indent;
    for (int i = 0; i < (width > 1 ? width : 1); i++)
        fputc('^', stream);
    const char *label = problem->label ? problem->label : "";
    print_line(stream, *label ? " " : "", label, strlen(label));
    return true;
}

static bool has_lines(const struct toml_place *place)
{
    return place->source && place->source->text && place->line > 0;
}

static void print_problem(FILE *stream, const struct problem *problem)
{
    const struct toml_place *place = &problem->place;
    const char *label = problem->label, *help = problem->help;
    fprintf(stream, "error[%s]: ", problem->code);
    print_line(stream, "", problem->what, strlen(problem->what));
    if (problem->where)
        print_line(stream, "  --> ", problem->where, strlen(problem->where));
    if (place->source) {
        fputs(problem->where ? "  = note: named in " : "  --> ", stream);
        put_escaped(stream, place->source->name, strlen(place->source->name));
        if (has_lines(place))
            fprintf(stream, ":%d:%d", place->line, place->column);
        fputc('\n', stream);
    }
    if ((!has_lines(place) || !print_excerpt(stream, problem)) && label)
        print_line(stream, "  = ", label, strlen(label));
    while (help && *help) {
        size_t bytes = strcspn(help, "\n");
        print_line(stream, "  = help: ", help, bytes);
        help += bytes + (help[bytes] == '\n');
    }
}

static json_t *problem_json(const struct problem *problem)
{
    const struct toml_place *place = &problem->place;
    bool is_known = has_lines(place);
    const char *file = place->source ? place->source->name : NULL;
    const char *help = problem->help ? problem->help : problem->label;
    return json_pack(
            "{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "code", problem->code,
            "message", json_string_or_null(problem->what), "where",
            json_string_or_null(problem->where), "file",
            json_string_or_null(file), "line",
            is_known ? json_integer(place->line) : json_null(), "column",
            is_known ? json_integer(place->column) : json_null(), "help",
            json_string_or_null(help));
}

json_t *problems_json(const struct problems *problems)
{
    json_t *all = json_array();
    for (int i = 0; i < problems->count; i++)
        json_array_append_new(all, problem_json(&problems->items[i]));
    return all;
}

void problems_print(const struct problems *problems, FILE *stream)
{
    int shown = problems->count < SHOWN_MAX ? problems->count : SHOWN_MAX;
    for (int i = 0; i < shown; i++) {
        if (i)
            fputc('\n', stream);
        print_problem(stream, &problems->items[i]);
    }
    if (problems->count > shown)
        fprintf(stream, "\n%d more errors are not shown\n",
                problems->count - shown);
    else if (problems->count > 1)
        fprintf(stream, "\n%d errors\n", problems->count);
    fflush(stream);
}

enum zd_status problems_status(const struct problems *problems)
{
    for (int i = 0; i < problems->count; i++)
        if (problems->items[i].status == ZD_ERR_CONFIG)
            return ZD_ERR_CONFIG;
    return problems->count ? problems->items[0].status : ZD_OK;
}

void problems_fini(struct problems *problems)
{
    for (int i = 0; i < problems->count; i++) {
        free(problems->items[i].where);
        free(problems->items[i].what);
        free(problems->items[i].label);
        free(problems->items[i].help);
    }
    free(problems->items);
    *problems = (struct problems){0};
}

/* --- values between TOML and JSON --- */

json_t *toml_json(const struct toml_node *node, struct problems *problems)
{
    json_t *json = NULL;
    switch (node->kind) {
    case TOML_STRING:
        return json_string(node->string);
    case TOML_INTEGER:
        return json_integer(node->integer);
    case TOML_BOOL:
        return json_boolean(node->boolean);
    case TOML_REAL:
        json = json_real(node->real); /* NULL for nan and inf */
        break;
    case TOML_ARRAY:
        json = json_array();
        break;
    case TOML_TABLE:
        json = json_object();
        break;
    case TOML_DATETIME:
        break;
    }
    if (!json)
        problem_add(
                problems, ZD_ERR_CONFIG, "E0205", node->place, NULL,
                "this table cannot hold %s",
                node->kind == TOML_REAL ? "inf or nan"
                                        : toml_kind_name(node->kind));
    for (int i = 0; json && i < node->count; i++) {
        json_t *item = toml_json(node->items[i], problems);
        if (node->kind == TOML_ARRAY
                    ? json_array_append_new(json, item)
                    : json_object_set_new(json, node->items[i]->key, item)) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

/* The fewest digits that come back exactly, marked as a number with a fraction.
 */
static void put_real(FILE *stream, double value)
{
    char text[UNITS_TEXT];
    units_exact(value, text);
    fputs(text, stream);
    if (!strpbrk(text, ".en"))
        fputs(".0", stream);
}

void toml_write_key(FILE *stream, const char *key)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (key[0] && strspn(key, bare) == strlen(key)) {
        fputs(key, stream);
        return;
    }
    json_auto_t *string = json_string(key);
    json_dumpf(string, stream, JSON_ENCODE_ANY);
}

/* JSON as a TOML value: strings are written alike. */
void toml_write(FILE *stream, const json_t *value)
{
    bool is_first = true;
    switch (json_typeof(value)) {
    case JSON_REAL:
        put_real(stream, json_real_value(value));
        break;
    case JSON_ARRAY:
        fputc('[', stream);
        JSON_EACH_AT(i, item, value) {
            fputs(i ? ", " : "", stream);
            toml_write(stream, item);
        }
        fputc(']', stream);
        break;
    case JSON_OBJECT:
        fputc('{', stream);
        JSON_MEMBERS(key, item, value) {
            fputs(is_first ? " " : ", ", stream);
            is_first = false;
            toml_write_key(stream, key);
            fputs(" = ", stream);
            toml_write(stream, item);
        }
        fputs(is_first ? "}" : " }", stream);
        break;
    default:
        json_dumpf(value, stream, JSON_ENCODE_ANY);
        break;
    }
}
