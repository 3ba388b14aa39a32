/* test_job_cases.c - the jobs of cases.txt: each mistake is told with its
 * place, values are what was written, and what is printed reads back as itself;
 * then what no row can say. */
#include "base/must.h"
#include "daemon/job/job.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>

enum { CASE_BYTES = 4096, SETS = 2, PROBLEMS = 8 };

struct row {
    struct scratch scratch;
    struct job_override sets[SETS];
    char set_text[SETS][CASE_BYTES];
    int set_count, world;
    bool is_alone, is_there;
    char heads[PROBLEMS][CASE_BYTES];
    int head_count;
    char text[CASE_BYTES];
    FILE *file; /* that lines go to; NULL: to `text` */

    struct job *job;
    enum zd_status status;
    const struct problems *problems;
};

/* What makes any text a whole job: put after it, so that lines keep their
 * numbers. */
static const char rest[] =
        "\n[model.config]\nmodel_type = \"llama\"\nhidden_size = 64\n"
        "num_hidden_layers = 2\nnum_attention_heads = 4\n"
        "num_key_value_heads = 2\nintermediate_size = 128\nvocab_size = 300\n"
        "max_position_embeddings = 4096\n\n[[data.train]]\npath = "
        "\"/dev/null\"\n";

static void load(struct row *row, const char *name, const char *text)
{
    struct zd_log_options log = {.level = ZD_LOG_ERROR, .rank = -1};
    char path[PATH_MAX];
    zd_log_configure(&log);
    ZD_PRINT(path, "%s", scratch_file(&row->scratch, name, text, strlen(text)));
    struct job_request request = {
            .path = path,
            .overrides = row->sets,
            .override_count = row->set_count,
            .world = row->world};
    row->status = job_load(&request, &row->job);
    row->problems = job_problems(row->job);
}

static void load_whole(struct row *row)
{
    char whole[2 * CASE_BYTES];
    ZD_PRINT(whole, "%s%s", row->text, row->is_alone ? "" : rest);
    load(row, "job.toml", whole);
}

static void row_init(struct row *row, const char *text)
{
    memset(row, 0, sizeof *row);
    scratch_init(&row->scratch);
    ZD_PRINT(row->text, "%s", text);
}

static void row_fini(struct row *row)
{
    job_free(row->job);
    scratch_fini(&row->scratch);
}

/* --- the file of cases ---------------------------------------------------- */

/* "--set train.max_steps=7"; a \n in it stands for a newline. */
static void add_override(struct row *row, const char *line)
{
    int i = row->set_count++;
    char *copy = row->set_text[i], *newline;
    cr_assert(i < SETS);
    snprintf(copy, CASE_BYTES, "%s", line);
    copy[strcspn(copy, "\n")] = '\0';
    if ((newline = strstr(copy, "\\n")))
        memcpy(newline, " \n", 2);
    char *key = strchr(copy, ' ');
    *key++ = '\0';
    bool is_set = strcmp(copy, "--set") == 0;
    char *value = is_set ? key : strchr(key, '=');
    if (!is_set)
        *value++ = '\0';
    row->sets[i] =
            (struct job_override){is_set ? NULL : key, value, copy, !is_set};
}

static void begin_file(struct row *row, const char *line)
{
    char name[100];
    const char *slash;
    cr_assert_eq(sscanf(line, "@file %99s", name), 1);
    if ((slash = strchr(name, '/'))) {
        char folder[100];
        ZD_PRINT(folder, "%.*s", (int)(slash - name), name);
        cr_assert_eq(fs_make_dirs(scratch_path(&row->scratch, folder)), ZD_OK);
    }
    row->file = fopen(scratch_path(&row->scratch, name), "w");
    cr_assert(row->file);
}

static void end_file(struct row *row)
{
    if (row->file)
        fclose(row->file);
    row->file = NULL;
}

static void add_line(struct row *row, const char *typed)
{
    char line[CASE_BYTES];
    size_t used = strlen(row->text);
    ZD_PRINT(line, "%s", typed);
    if (line[0] == '=' && strchr("=+", line[1])) {
        cr_assert(row->head_count < PROBLEMS);
        snprintf(row->heads[row->head_count++], CASE_BYTES, "%s", line + 3);
    } else if (strncmp(line, "@--", 3) == 0) {
        add_override(row, line + 1);
    } else if (strncmp(line, "@file", 5) == 0) {
        end_file(row);
        begin_file(row, line);
    } else if (strncmp(line, "@job", 4) == 0) {
        end_file(row);
    } else if (strncmp(line, "@alone", 6) == 0) {
        row->is_alone = true;
    } else if (strncmp(line, "@world", 6) == 0) {
        row->world = atoi(line + 6);
    } else if (row->file) {
        fputs(line, row->file);
    } else if (line[0] != '#') {
        snprintf(row->text + used, CASE_BYTES - used, "%s", line);
    }
}

/* The next case; the line of the one after it is left in `line`. */
static void next_row(struct row *row, FILE *file, char line[CASE_BYTES])
{
    row_init(row, "");
    row->is_there = line[0] != '\0';
    add_line(row, line);
    line[0] = '\0';
    while (fgets(line, CASE_BYTES, file) && strncmp(line, "== ", 3) != 0) {
        add_line(row, line);
        line[0] = '\0';
    }
    end_file(row);
}

/* --- what is expected ----------------------------------------------------- */

static bool says(const struct problem *problem, const char *text)
{
    return strstr(problem->what, text) ||
           (problem->label && strstr(problem->label, text)) ||
           (problem->help && strstr(problem->help, text)) ||
           (problem->place.source && strstr(problem->place.source->name, text));
}

static void expect_problem(
        const struct row *row, const char *head, const struct problem *got)
{
    char code[8], words[CASE_BYTES];
    int line, column;
    cr_assert_eq(
            sscanf(head, "%7s %d:%d %4095[^\n]", code, &line, &column, words),
            4, "%s", head);
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

/* "optim.name = "adamw" @ job.toml:2"; without a value, or without an origin; a
 * value that ends in ".." is the beginning of one */
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
    ZD_FREED char *got = json_dumps(
            json_object_get(row, "value"),
            JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const char *from = json_string_at(row, "origin");
    char *dots = value ? strstr(value, "..") : NULL;
    if (dots && !dots[2])
        cr_expect_eq(
                strncmp(got, value + 3, (size_t)(dots - value - 3)), 0,
                "%s: %s", want, got);
    else if (value)
        cr_expect_str_eq(got, value + 3, "%s", want);
    if (origin)
        cr_expect(strstr(from, origin + 3), "%s: %s", want, from);
}

static void expect_same_printed(const struct row *row)
{
    struct row again;
    ZD_FREED char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    job_print(row->job, stream);
    fclose(stream);
    row_init(&again, "");
    again.world = row->world;
    load(&again, "other.toml", text);
    cr_expect_eq(
            again.status, ZD_OK, "%s%s", text,
            again.problems->count ? again.problems->items[0].what : "");
    cr_expect_str_eq(
            job_options(again.job)->digest, job_options(row->job)->digest, "%s",
            text);
    row_fini(&again);
}

static void expect_valid(struct row *row)
{
    json_t *json = job_json(row->job);
    char *at = row->heads[0] + strlen("ok"), *end;
    cr_assert_eq(
            row->status, ZD_OK, "%s: %s", row->text,
            row->problems->count ? row->problems->items[0].what : "");
    at[strcspn(at, "\n")] = '\0';
    for (; *at; at = end ? end + 3 : at + strlen(at)) {
        at += strspn(at, " ");
        if ((end = strstr(at, " || ")))
            *end = '\0';
        expect_value(json_object_get(json, "values"), at);
    }
    json_decref(json);
    expect_same_printed(row);
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
    for (next_row(&row, file, line); row.is_there; next_row(&row, file, line)) {
        load_whole(&row);
        if (strncmp(row.heads[0], "ok", 2) == 0)
            expect_valid(&row);
        else
            cr_assert_eq(
                    row.problems->count, row.head_count, "%s%s", row.heads[0],
                    row.text);
        for (int i = 0; i < row.problems->count; i++)
            expect_problem(&row, row.heads[i], &row.problems->items[i]);
        row_fini(&row);
        count++;
    }
    row_fini(&row);
    cr_expect_gt(count, 150);
    fclose(file);
}

/* --- what no row can say -------------------------------------------------- */

Test(job_cases, problems_are_printed_with_their_line_and_no_control_character)
{
    struct row row;
    ZD_FREED char *text = NULL;
    size_t bytes;
    row_init(
            &row,
            "[optim]\nlearning_rat = 1\n[train]\n\"\\u001b[31mred\" = 1\n");
    load_whole(&row);
    FILE *stream = open_memstream(&text, &bytes);
    problems_print(row.problems, stream);
    fclose(stream);
    cr_expect(strstr(text, "job.toml:2:1\n"));
    cr_expect(strstr(text, "2 | learning_rat = 1\n"));
    cr_expect(strstr(text, "| ^^^^^^^^^^^^ did you mean `learning_rate`?\n"));
    cr_expect(strstr(text, "\nerror[E0203]"));
    cr_expect_null(strchr(text, 0x1b));
    row_fini(&row);
}

Test(job_cases, a_file_over_a_mebibyte_or_missing_is_refused)
{
    struct row row;
    size_t bytes = TOML_MAX_BYTES + 1;
    ZD_FREED char *text = malloc(bytes + 1);
    memset(text, '\n', bytes);
    text[bytes] = '\0';
    row_init(&row, "");
    load(&row, "job.toml", text);
    cr_expect_eq(row.status, ZD_ERR_CONFIG);
    cr_expect_eq(row.problems->count, 1);
    job_free(row.job);
    struct job_request request = {.path = "/nonexistent/job.toml"};
    cr_expect_eq(job_load(&request, &row.job), ZD_ERR_NO_INPUT);
    cr_expect_eq(job_problems(row.job)->count, 1);
    row_fini(&row);
}

Test(job_cases, an_adapter_of_its_own_replaces_that_of_the_base)
{
    static const char base[] =
            "[lora]\nenabled = true\nr = 8\nlora_dropout = 0.5\n"
            "quantize_base = \"nf4\"\nrank_pattern = { q_proj = 4 }\n";
    struct row row;
    row_init(&row, "extends = \"base.toml\"\n[lora]\npath = \"other\"\n");
    scratch_file(&row.scratch, "base.toml", base, strlen(base));
    load_whole(&row);
    cr_expect_eq(json_object_size(job_options(row.job)->lora.given), 0);
    cr_expect(job_options(row.job)->lora.gives_quantize_base);
    row_fini(&row);
}

Test(job_cases, only_what_ranks_share_is_in_the_digest)
{
    static const struct {
        const char *text;
        bool differs;
    } cases[] = {
            {"[device]\ncpu_threads = 3\n", false},
            {"[data]\ncache_dir = \"/tmp/x\"\n", false},
            {"[optim]\nlearning_rate = 2.0e-5\n", false},
            {"[optim]\nlearning_rate = 2.1e-5\n", true},
            {"[data]\nshuffle = false\n", true},
            {"[job]\noutput_dir = \"elsewhere\"\n", true},
    };
    struct row base, row;
    row_init(&base, "");
    load_whole(&base);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        row_init(&row, cases[i].text);
        load_whole(&row);
        cr_expect_eq(
                strcmp(job_options(row.job)->digest,
                       job_options(base.job)->digest) != 0,
                cases[i].differs, "%s", cases[i].text);
        row_fini(&row);
    }
    row_fini(&base);
}
