/* The cases of the files in tests/data/cases: what data becomes of files, or
 * the error. README.txt there says how they are written. */
#include "base/must.h"
#include "data/chat.h"
#include "data/format.h"
#include "data/inspect.h"
#include "tests/data/data_expect.h"

enum { SETTINGS_MAX = 12, FILES_MAX = 5, PAIRS_MAX = 4 };

struct text {
    char bytes[4096];
    size_t count;
};

struct row {
    const char *name;
    struct {
        const char *name;
        struct text content;
    } files[FILES_MAX];
    int file_count;
    char *settings[SETTINGS_MAX][2];
    int setting_count;
    struct text want;
    char *error, *help; /* NULL: none is expected */
};

static void append(struct text *text, const void *bytes, size_t count)
{
    cr_assert_lt(text->count + count, sizeof text->bytes);
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

/* A line with its %XX as bytes. */
static void append_line(struct text *text, const char *line, const char *end)
{
    for (; *line; line++) {
        unsigned byte = (unsigned char)*line;
        if (*line == '%' && sscanf(line + 1, "%2x", &byte) == 1)
            line += 2;
        append(text, &(char){(char)byte}, 1);
    }
    append(text, end, strlen(end));
}

/* Little-endian numbers, or 'ab$, characters of which $ is 256. */
static void append_numbers(struct text *text, char *line, size_t width)
{
    for (char *item; (item = strsep(&line, " "));) {
        int64_t number = strtoll(item, NULL, 0);
        if (*item != '\'')
            append(text, &number, width);
        while (*item == '\'' && item[1]) {
            number = item[1] == '$' ? 256 : item[1];
            append(text, &number, width);
            *++item = '\'';
        }
    }
}

/* --- the job of a case --- */

/* Each file is an entry, with the number for it in `value`. */
static void set_entries(
        const struct row *row, struct data_case *test, const char *value,
        bool is_weight)
{
    static struct data_entry entries[FILES_MAX];
    static char paths[FILES_MAX][PATH_MAX];
    char *rest = (char *)value;
    if (test->request.entry_count != row->file_count)
        for (int i = 0; i < row->file_count; i++) {
            fs_join(paths[i], PATH_MAX, test->scratch.dir, row->files[i].name);
            entries[i] = data_entry_default();
            entries[i].path = paths[i];
        }
    for (int i = 0; i < row->file_count; i++) {
        double number = strtod(rest, &rest);
        if (is_weight)
            entries[i].weight = number;
        else
            entries[i].max_samples = (int64_t)number;
    }
    test->request.entries = entries;
    test->request.entry_count = row->file_count;
}

/* Is it one of the settings that are a word, a number, yes or no? */
static bool set_field(
        struct data_case *test, const char *key, const char *value)
{
    struct data_options *options = &test->options;
    struct data_entry *entry = &test->entry;
    const struct {
        const char *key, **word;
        int *number;
        bool *flag;
    } fields[] = {
            {"field", &entry->field},
            {"name", &entry->name},
            {"split", &entry->split},
            {"messages_field", &entry->messages_field},
            {"role_field", &entry->role_field},
            {"content_field", &entry->content_field},
            {"template_date", &test->request.template_date},
            {"cutoff_len", .number = &options->cutoff_len},
            {"eos", .number = &test->request.eos},
            {"vocab", .number = &test->request.vocab_size},
            {"add_eos", .flag = &options->add_eos},
            {"eval", .flag = &entry->is_eval},
            {"masked", .flag = &test->request.may_be_masked}};
    for (size_t i = 0; i < COUNT(fields); i++) {
        if (strcmp(key, fields[i].key) != 0)
            continue;
        if (fields[i].word)
            *fields[i].word = value;
        else if (fields[i].number)
            *fields[i].number = atoi(value);
        else
            *fields[i].flag = strcmp(value, "yes") == 0;
        return true;
    }
    return false;
}

/* The place of a word in a list. */
static int word_in(const char *list, const char *word)
{
    int place = 0;
    for (size_t bytes; *list;
         list += bytes + strspn(list + bytes, " "), place++) {
        bytes = strcspn(list, " ");
        if (strlen(word) == bytes && strncmp(list, word, bytes) == 0)
            return place;
    }
    cr_assert_fail("no value %s", word);
    return 0;
}

/* "theirs=ours", ... */
static int split_pairs(char *value, const char *pairs[PAIRS_MAX])
{
    int count = 0;
    for (char *pair; (pair = strsep(&value, " ")); count++)
        pairs[count] = pair;
    return count;
}

static void set(
        const struct row *row, struct data_case *test, const char *key,
        const char *value)
{
    struct dataset_request *request = &test->request;
    int number = 0;
    if (strcmp(key, "format") == 0) {
        while (strcmp(format_of((enum data_format)number)->name, value) != 0)
            number++;
        test->entry.format = (enum data_format)number;
    } else if (strcmp(key, "chat_file") == 0) {
        static char path[PATH_MAX];
        fs_join(path, PATH_MAX, test->scratch.dir, value);
        test->options.chat_template = CHAT_FILE;
        test->options.chat_file = path;
    } else if (strcmp(key, "chat_template") == 0) {
        static const char *const words[] = {
#define LAYOUT(value, word, ...) word,
#include "data/layouts.inc"
#undef LAYOUT
        };
        while (strcmp(words[number], value) != 0)
            number++;
        test->options.chat_template = (enum chat_template)number;
    } else if (strcmp(key, "packing") == 0) {
        test->options.packing =
                (enum data_packing)word_in("no yes documents auto", value);
    } else if (strcmp(key, "long_documents") == 0) {
        test->options.long_documents =
                (enum long_documents)word_in("truncate split drop", value);
    } else if (strcmp(key, "on_bad_row") == 0) {
        test->options.on_bad_row = BAD_ROW_SKIP;
    } else if (strcmp(key, "train_on") == 0) {
        test->options.train_on =
                (enum train_on)word_in("assistant all last", value);
    } else if (strcmp(key, "columns") == 0) {
        static const char *columns[PAIRS_MAX];
        test->entry.columns = columns;
        test->entry.column_count = split_pairs((char *)value, columns);
    } else if (strcmp(key, "roles") == 0) {
        static const char *roles[PAIRS_MAX];
        test->entry.roles = roles;
        test->entry.role_count = split_pairs((char *)value, roles);
    } else if (strcmp(key, "path") == 0) {
        fs_join(test->path, PATH_MAX, test->scratch.dir, value);
    } else if (strcmp(key, "weight") == 0 || strcmp(key, "max_samples") == 0) {
        set_entries(row, test, value, *key == 'w');
    } else if (strcmp(key, "part") == 0) {
        sscanf(value, "%lf %lf", &request->from, &request->to);
        test->options.val_split = 1 - request->from;
    } else if (strcmp(key, "tokenizer") == 0) {
        request->tokenizer =
                strcmp(value, "none") == 0 ? NULL : test->tokenizer;
    } else if (strcmp(key, "show") != 0) {
        cr_assert(set_field(test, key, value), "no setting %s", key);
    }
}

static const char *setting(const struct row *row, const char *key)
{
    for (int i = 0; i < row->setting_count; i++)
        if (strcmp(row->settings[i][0], key) == 0)
            return row->settings[i][1];
    return NULL;
}

/* --- what is shown of it --- */

/* Characters, $ for 256 and . for padding or what is masked. */
static void put_row(FILE *out, const int32_t *row, int T, int32_t none)
{
    for (int t = 0; t < T; t++)
        fputc(row[t] == none ? '.' : row[t] == 256 ? '$' : row[t], out);
    fputc(' ', out);
}

/* How many there are; of each its tokens, targets, where documents begin, and
 * its count of tokens. */
static void show_samples(FILE *out, struct dataset *dataset, int lines)
{
    fprintf(out, "%lld", (long long)dataset_summary(dataset).samples);
    for (int n = 0; n + 1 < lines; n++) {
        struct sample sample = must_read(dataset, n);
        fputc('\n', out);
        put_row(out, sample.tokens, dataset->T, 0);
        put_row(out, sample.targets, dataset->T, -1);
        for (int t = 0; t < dataset->T; t++)
            fputc('0' + sample.doc_start[t], out);
        fprintf(out, " %d", sample.count);
    }
}

/* The first token of each sample. */
static void show_epochs(FILE *out, struct dataset *dataset, int lines)
{
    int64_t M = dataset_summary(dataset).samples;
    for (int64_t n = 0; n < M * lines; n++) {
        fputs(n > 0 && n % M == 0 ? "\n" : "", out);
        fputc(must_read(dataset, n).tokens[0], out);
    }
}

static void show_ids(FILE *out, struct data_case *test)
{
    struct corpus corpus;
    cr_assert_eq(data_case_corpus(test, &corpus), ZD_OK);
    for (uint64_t i = 0; i < corpus.count; i++)
        fprintf(out, "%s%u", i ? " " : "", corpus.cache.words[i] & WORD_ID);
    corpus_close(&corpus);
}

static void inspect(
        FILE *out, struct data_case *test, struct dataset *dataset,
        const char *how)
{
    const struct inspect_view view = {
            .count = atoi(how),
            .color = strstr(how, "color"),
            .ids = strstr(how, "ids")};
    json_t *json = NULL;
    if (strstr(how, "json")) {
        cr_assert_eq(
                dataset_inspect_json(
                        dataset, test->request.tokenizer, &view, &json),
                ZD_OK);
        json_dumpf(json, out, JSON_SORT_KEYS);
        json_decref(json);
        return;
    }
    cr_expect_eq(
            dataset_inspect(out, dataset, test->request.tokenizer, &view),
            ZD_OK);
}

static char *show(const struct row *row, struct data_case *test)
{
    const char *how = setting(row, "show");
    char *text = NULL;
    size_t bytes;
    int lines = 1;
    for (size_t i = 0; i < row->want.count; i++)
        lines += row->want.bytes[i] == '\n';
    if (!how)
        return data_case_words(test);
    FILE *out = open_memstream(&text, &bytes);
    struct dataset *dataset = data_case_open(test);
    if (strcmp(how, "ids") == 0)
        show_ids(out, test);
    else if (dataset && strcmp(how, "samples") == 0)
        show_samples(out, dataset, lines);
    else if (dataset && strcmp(how, "epochs") == 0)
        show_epochs(out, dataset, lines);
    else if (dataset)
        inspect(out, test, dataset, how);
    dataset_close(dataset);
    fclose(out);
    return text;
}

static void expect_shown(const struct row *row, struct data_case *test)
{
    const char *how = setting(row, "show");
    ZD_FREED char *text = show(row, test);
    const char *told = text && *text ? text : zd_error_get()->what;
    if (text && how && atoi(how) > 0) /* a part of it */
        cr_expect(
                strstr(text, row->want.bytes), "%s: %s\nnot in\n%s", row->name,
                row->want.bytes, told);
    else
        cr_expect_str_eq(text, row->want.bytes, "%s: %s", row->name, told);
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
    for (char *gap = place; (gap = strchr(gap, '_'));)
        *gap = ' ';
    struct dataset *dataset = data_case_open(test);
    cr_expect_null(dataset, "%s", row->name);
    dataset_close(dataset);
    cr_expect_str_eq(
            error->code, code, "%s: %s %s", row->name, error->code,
            error->what);
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
    bool has_more = place[length - 1] == ':'; /* a column, or a byte */
    cr_expect(
            has_more ? strncmp(where, place, length) == 0 &&
                               strpbrk(where + length, "123456789")
                     : strcmp(where, place) == 0,
            "%s: %s", row->name, error->where);
}

static void run(const struct row *row)
{
    struct data_case test;
    const char *fixture = setting(row, "tokenizer");
    data_case_init(
            &test, fixture && strcmp(fixture, "none") != 0 ? fixture : NULL);
    for (int i = 0; i < row->file_count; i++) {
        scratch_path(&test.scratch, row->files[i].name);
        *strrchr(test.scratch.path, '/') = '\0';
        cr_assert_eq(fs_make_dirs(test.scratch.path), ZD_OK);
        data_case_file(
                &test, row->files[i].name, row->files[i].content.bytes,
                row->files[i].content.count);
    }
    test.options.chat_template = CHAT_NONE;
    test.options.preprocessing_threads = 2;
    for (int i = 0; i < row->setting_count; i++)
        set(row, &test, row->settings[i][0], row->settings[i][1]);
    if (row->error)
        expect_error(row, &test);
    else
        expect_shown(row, &test);
    data_case_fini(&test);
}

/* --- reading them --- */

static struct text *content_of(struct row *row)
{
    if (row->file_count == 0)
        row->files[row->file_count++].name = "a.jsonl";
    return &row->files[row->file_count - 1].content;
}

static void read_line(struct row *row, char *key, char *value)
{
    if (*key == '<') {
        append_line(content_of(row), value, key[1] ? "" : "\n");
    } else if (*key >= '1' && *key <= '8') {
        append_numbers(content_of(row), value, (size_t)(*key - '0'));
    } else if (strcmp(key, "size") == 0) { /* cut there, or zeros up to it */
        content_of(row)->count = (size_t)atoi(value);
    } else if (*key == '>') {
        append_line(&row->want, row->want.count ? "%0a" : "", "");
        append_line(&row->want, value, "");
    } else if (*key == '!') {
        row->error = value;
    } else if (*key == '?') {
        row->help = value;
    } else if (strcmp(key, "file") == 0) {
        cr_assert_lt(row->file_count, FILES_MAX);
        row->files[row->file_count++].name = value;
    } else {
        cr_assert_lt(row->setting_count, SETTINGS_MAX);
        row->settings[row->setting_count][0] = key;
        row->settings[row->setting_count++][1] = value;
    }
}

/* At least so many cases of a file. */
static void run_file(const char *name, int least)
{
    char path[PATH_MAX], *text, *line;
    size_t bytes;
    int count = 0;
    ZD_FREED struct row *row = calloc(1, sizeof *row);
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
        if (strcmp(line, "case") != 0) {
            read_line(row, line, value);
            continue;
        }
        if (count++)
            run(row);
        *row = (struct row){.name = value};
    }
    run(row);
    cr_expect_geq(count, least, "%s has %d cases", name, count);
    free(text);
}

Test(data_rows, bad_input_has_one_error_that_names_its_place)
{
    run_file("bad.txt", 106);
}

Test(data_rows, documents_are_what_each_format_says)
{
    run_file("documents.txt", 33);
}

Test(data_rows, chats_are_laid_out_and_masked_as_their_template_says)
{
    run_file("chat.txt", 51);
}

Test(data_rows, tokens_are_what_each_format_of_files_says)
{
    run_file("tokens.txt", 73);
}

Test(data_rows, files_of_a_folder_are_found_as_its_hub_says)
{
    run_file("folders.txt", 30);
}

Test(data_rows, samples_are_cut_from_the_stream_or_a_document_each)
{
    run_file("samples.txt", 20);
}

Test(data_rows, inspect_shows_totals_and_samples)
{
    run_file("inspect.txt", 10);
}
