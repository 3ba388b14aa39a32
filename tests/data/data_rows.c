/* data_rows.c - cases of a file in tests/data/cases, whose head says how they
 * are written. */
#include "data/format.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

enum { SETTINGS_MAX = 8 };

struct text {
    char bytes[4096];
    size_t count;
};

struct row {
    const char *name, *file;
    char *settings[SETTINGS_MAX][2];
    int setting_count;
    struct text content, words;
    char *error, *help; /* NULL: none is expected */
};

/* A line with its %XX as bytes. */
static void append(struct text *text, const char *line, const char *end)
{
    unsigned byte;
    for (; *line; line++) {
        bool is_byte = *line == '%' && sscanf(line + 1, "%2x", &byte) == 1;
        text->bytes[text->count++] = is_byte ? (char)byte : *line;
        line += is_byte ? 2 : 0;
    }
    for (; *end; end++)
        text->bytes[text->count++] = *end;
    text->bytes[text->count] = '\0';
    cr_assert_lt(text->count, sizeof text->bytes - 200);
}

static void set(struct data_case *test, const char *key, const char *value)
{
    struct data_options *options = &test->options;
    struct data_entry *entry = &test->entry;
    const struct {
        const char *key, **field;
    } names[] = {
            {"field", &entry->field},
            {"messages_field", &entry->messages_field},
            {"role_field", &entry->role_field},
            {"content_field", &entry->content_field}};
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(key, names[i].key) == 0) {
            *names[i].field = value;
            return;
        }
    int number = 0;
    if (strcmp(key, "format") == 0) {
        while (strcmp(format_of((enum data_format)number)->name, value) != 0)
            number++;
        entry->format = (enum data_format)number;
    } else if (strcmp(key, "chat_template") == 0) {
        while (strcmp(chat_template_name((enum chat_template)number), value) !=
               0)
            number++;
        options->chat_template = (enum chat_template)number;
    } else if (strcmp(key, "train_on") == 0) {
        options->train_on = TRAIN_ON_ALL;
    } else if (strcmp(key, "add_eos") == 0) {
        options->add_eos = false;
    } else if (strcmp(key, "eos") == 0) {
        test->request.eos = -1;
    } else {
        cr_assert_fail("no setting %s", key);
    }
}

static void expect_words(const struct row *row, struct data_case *test)
{
    char *words = data_case_words(test);
    cr_expect_str_eq(
            words, row->words.bytes, "%s: %s", row->name,
            words ? words : zd_error_get()->what);
    free(words);
}

static void expect_error(const struct row *row, struct data_case *test)
{
    const struct zd_error *error = zd_error_get();
    char code[8], place[64];
    int exit_code, begin = 0;
    cr_assert_eq(
            sscanf(row->error, "%7s %d %63s %n", code, &exit_code, place,
                   &begin),
            3);
    cr_expect_null(data_case_open(test), "%s", row->name);
    cr_expect_str_eq(error->code, code, "%s: %s", row->name, error->what);
    cr_expect_eq(zd_exit_code(error->status), exit_code, "%s", row->name);
    cr_expect(
            strstr(error->what, row->error + begin), "%s: %s", row->name,
            error->what);
    cr_expect(
            !row->help || strstr(error->help, row->help), "%s: %s", row->name,
            error->help);
    const char *slash = strrchr(error->where, '/');
    const char *where = slash ? slash + 1 : "-";
    size_t length = strlen(place);
    bool has_column = place[length - 1] == ':';
    cr_expect(
            has_column ? strncmp(where, place, length) == 0 &&
                                 atoi(where + length) > 0
                       : strcmp(where, place) == 0,
            "%s: %s", row->name, error->where);
}

static void run(const struct row *row)
{
    struct data_case test;
    const char *fixture = NULL;
    for (int i = 0; i < row->setting_count; i++)
        if (strcmp(row->settings[i][0], "tokenizer") == 0)
            fixture = row->settings[i][1];
    data_case_init(&test, fixture);
    data_case_file(&test, row->file, row->content.bytes, row->content.count);
    test.options.chat_template = CHAT_NONE;
    test.options.preprocessing_threads = 2;
    for (int i = 0; i < row->setting_count; i++)
        if (row->settings[i][1] != fixture)
            set(&test, row->settings[i][0], row->settings[i][1]);
    if (row->error)
        expect_error(row, &test);
    else
        expect_words(row, &test);
    data_case_fini(&test);
}

void data_rows_run(const char *name, int least)
{
    char path[PATH_MAX], *text, *line;
    size_t bytes;
    int count = 0;
    struct row *row = calloc(1, sizeof *row);
    fs_join(path, sizeof path, ZD_SOURCE "/tests/data/cases", name);
    cr_assert_eq(fs_read_file(path, 1 << 20, &text, &bytes), ZD_OK);
    for (char *rest = text; (line = strsep(&rest, "\n"));) {
        char *value = strchr(line, ' ');
        if (!*line || *line == '#')
            continue;
        if (value)
            *value++ = '\0';
        else
            value = line + strlen(line);
        if (strcmp(line, "case") == 0) {
            if (count++)
                run(row);
            *row = (struct row){.name = value, .file = "a.jsonl"};
        } else if (*line == '<') {
            append(&row->content, value, line[1] ? "" : "\n");
        } else if (*line == '>') {
            append(&row->words, row->words.count ? "%0a" : "", "");
            append(&row->words, value, "");
        } else if (*line == '!') {
            row->error = value;
        } else if (*line == '?') {
            row->help = value;
        } else if (strcmp(line, "file") == 0) {
            row->file = value;
        } else {
            cr_assert_lt(row->setting_count, SETTINGS_MAX);
            row->settings[row->setting_count][0] = line;
            row->settings[row->setting_count++][1] = value;
        }
    }
    run(row);
    cr_expect_geq(count, least, "%s has %d cases", name, count);
    free(row);
    free(text);
}
