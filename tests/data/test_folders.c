/* Folders as they come from a hub: which files are read, and how. */
#include "base/file/fs.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

enum { FILES_MAX = 6 };

struct folder {
    const char *what;
    const char *files[FILES_MAX][2]; /* path, content; content NULL: its name's
                                        first letter as a text */
    const char *name, *split;
    bool is_eval;
    const char *words;          /* as data_case_words, or */
    const char *code, *message; /* the error */
};

static void write_files(struct data_case *test, const struct folder *row)
{
    for (int i = 0; i < FILES_MAX && row->files[i][0]; i++) {
        char path[PATH_MAX], text[64], *slash;
        snprintf(
                path, sizeof path, "%s/%s", test->scratch.dir,
                row->files[i][0]);
        slash = strrchr(path, '/');
        *slash = '\0';
        cr_assert_eq(fs_make_dirs(path), ZD_OK);
        const char *dot = strrchr(row->files[i][0], '.');
        snprintf(
                text, sizeof text,
                strcmp(dot, ".txt") == 0 ? "%c" : "{\"text\":\"%c\"}\n",
                slash[1]);
        *slash = '/';
        const char *content = row->files[i][1] ? row->files[i][1] : text;
        cr_assert_eq(fs_write_file(path, content, strlen(content)), ZD_OK);
    }
}

static void run(const struct folder *row)
{
    struct data_case test;
    data_case_init(&test, NULL);
    snprintf(test.path, sizeof test.path, "%s/d", test.scratch.dir);
    test.entry.path = test.path;
    test.entry.name = row->name ? row->name : "";
    test.entry.split = row->split ? row->split : "auto";
    test.entry.is_eval = row->is_eval;
    test.options.chat_template = CHAT_NONE;
    write_files(&test, row);
    char *words = data_case_words(&test);
    if (row->words)
        cr_expect(
                words && strcmp(words, row->words) == 0, "%s: %s %s", row->what,
                words, zd_error_get()->what);
    else
        cr_expect(
                !words && strcmp(zd_error_get()->code, row->code) == 0 &&
                        strstr(zd_error_get()->what, row->message),
                "%s: %s %s", row->what, words, zd_error_get()->what);
    free(words);
    data_case_fini(&test);
}

static void run_all(const struct folder *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        run(&rows[i]);
}

Test(data_folders, splits_are_found_by_names)
{
    static const struct folder rows[] = {
            {"shards",
             {{"d/data/train-00000-of-00002.jsonl", NULL},
              {"d/data/train-00001-of-00002.jsonl", "{\"text\":\"u\"}"},
              {"d/data/test-00000-of-00001.jsonl", "{\"text\":\"e\"}"},
              {"d/train.jsonl", "{\"text\":\"no\"}"}},
             .words = "|[t]$|[u]$"},
            {"another split of shards",
             {{"d/data/train_sft-00000-of-00001.jsonl", NULL},
              {"d/data/test_sft-00000-of-00001.jsonl", NULL}},
             .code = "E0454",
             .message = "no split \"train\"; it has test_sft, train_sft"},
            {"it, by its name",
             {{"d/data/train_sft-00000-of-00001.jsonl", NULL},
              {"d/data/test_sft-00000-of-00001.jsonl", NULL}},
             .split = "train_sft",
             .words = "|[t]$"},
            {"folders",
             {{"d/train/a.jsonl", NULL},
              {"d/dev-set/b.jsonl", NULL},
              {"d/test.jsonl", NULL}},
             .words = "|[a]$"},
            {"files",
             {{"d/my-train.v1.jsonl", NULL},
              {"d/trainer.jsonl", NULL},
              {"d/val_1.jsonl", NULL}},
             .words = "|[m]$"},
            {"for evaluation",
             {{"d/train.jsonl", NULL},
              {"d/val_1.jsonl", NULL},
              {"d/eval.jsonl", NULL}},
             .is_eval = true,
             .words = "|[v]$"},
            {"a test for evaluation",
             {{"d/train.jsonl", NULL}, {"d/eval.jsonl", NULL}},
             .is_eval = true,
             .words = "|[e]$"},
            {"no names",
             {{"d/b.jsonl", NULL},
              {"d/x/a.jsonl", NULL},
              {"d/c.txt", NULL},
              {"d/.hidden.jsonl", NULL},
              {"d/dataset_infos.json", "{}"}},
             .words = "|[b]$|[a]$"},
            {"nothing",
             {{"d/a.csv", "a,b"}},
             .code = "E0454",
             .message = "holds no data file"},
            {"saved by datasets",
             {{"d/state.json", "{}"}, {"d/data-00000-of-00001.arrow", "x"}},
             .code = "E0454",
             .message = "save_to_disk"}};
    run_all(rows, COUNT(rows));
}

#define TWO                                                                    \
    "---\nlicense: mit\nconfigs:\n- config_name: en\n  data_files:\n"          \
    "  - split: train\n    path: [\"en/*.jsonl\", \"more.jsonl\"]\n"           \
    "  - split: test\n    path: de/*\n- config_name: de\n"                     \
    "  data_dir: de\n%s---\n# Data\n"

Test(data_folders, configs_of_the_readme_say_which_files)
{
    static char none[400], marked[400];
    snprintf(none, sizeof none, TWO, "");
    snprintf(marked, sizeof marked, TWO, "  default: true\n");
#define FILES(readme)                                                          \
    {                                                                          \
        {"d/README.md", readme}, {"d/en/a.jsonl", NULL},                       \
                {"d/de/b.jsonl", NULL},                                        \
        {                                                                      \
            "d/more.jsonl", NULL                                               \
        }                                                                      \
    }
    const struct folder rows[] = {
            {"the name", FILES(none), .name = "en", .words = "|[a]$|[m]$"},
            {"its test", FILES(none), .name = "en", .split = "test",
             .words = "|[b]$"},
            {"a data_dir", FILES(none), .name = "de", .words = "|[b]$"},
            {"the default", FILES(marked), .words = "|[b]$"},
            {"none is", FILES(none), .code = "E0454",
             .message = "none is the default: en, de"},
            {"not there", FILES(none), .name = "fr", .code = "E0454",
             .message = "no set \"fr\"; it has en, de"},
            {"a README without any", FILES("# Data\n"),
             .words = "|[b]$|[a]$|[m]$"},
            {"a pattern alone",
             FILES("---\nconfigs:\n- config_name: x\n  data_files: "
                   "en/*\n---\n"),
             .words = "|[a]$"},
            {"broken YAML", FILES("---\nconfigs: [\n---\n"), .code = "E0221",
             .message = "not valid YAML"}};
    run_all(rows, COUNT(rows));
}

Test(data_folders, sets_of_llamafactory_are_entries)
{
#define SET(text) "{\"one\": {" text "}}"
    static const char chat[] = "[{\"id\": 1, \"text\": \"no\", \"turns\": "
                               "[{\"who\": \"me\", \"says\": \"Hi\"}, "
                               "{\"who\": \"bot\", \"says\": \"Bye\"}]}]";
    static const char alpaca[] = "[{\"q\": \"Hi\", \"a\": \"Bye\", "
                                 "\"input\": \"no\", \"messages\": 1}]";
#define CASE(set, content)                                                     \
    {                                                                          \
        {"d/dataset_info.json", SET(set)},                                     \
        {                                                                      \
            "d/x.json", content                                                \
        }                                                                      \
    }
    static const struct folder rows[] = {
            {"conversations",
             CASE("\"file_name\": \"x.json\", \"formatting\": \"sharegpt\", "
                  "\"columns\": {\"messages\": \"turns\"}, \"tags\": "
                  "{\"role_tag\": \"who\", \"content_tag\": \"says\", "
                  "\"user_tag\": \"me\", \"assistant_tag\": \"bot\"}",
                  chat),
             .words = "|[Hi]Bye"},
            {"messages of OpenAI",
             CASE("\"file_name\": \"x.json\", \"formatting\": \"openai\", "
                  "\"columns\": {\"messages\": \"turns\"}, \"tags\": "
                  "{\"role_tag\": \"who\", \"content_tag\": \"says\", "
                  "\"user_tag\": \"me\", \"assistant_tag\": \"bot\"}",
                  chat),
             .words = "|[Hi]Bye"},
            {"prompts",
             CASE("\"file_name\": \"x.json\", \"columns\": "
                  "{\"prompt\": \"q\", \"response\": \"a\"}",
                  alpaca),
             .words = "|[Hi\n]Bye$"},
            {"plain text",
             CASE("\"file_name\": \"x.json\", \"columns\": {\"prompt\": "
                  "\"a\"}",
                  alpaca),
             .words = "|[B]ye$"},
            {"by name",
             {{"d/dataset_info.json",
               "{\"a\": {\"hf_hub_url\": \"u/x\"}, \"b\": {\"file_name\": "
               "\"y.jsonl\", \"columns\": {\"prompt\": \"text\"}}}"},
              {"d/y.jsonl", NULL}},
             .name = "b",
             .words = "|[y]$"},
            {"preferences",
             CASE("\"file_name\": \"x.json\", \"ranking\": true", alpaca),
             .code = "E0454", .message = "preferences"},
            {"of a hub", CASE("\"hf_hub_url\": \"u/x\"", alpaca),
             .code = "E0454", .message = "no file in the folder"},
            {"images",
             CASE("\"file_name\": \"x.json\", \"columns\": {\"images\": \"i\"}",
                  alpaca),
             .code = "E0454", .message = "\"images\""},
            {"a part",
             CASE("\"file_name\": \"x.json\", \"num_samples\": 3", alpaca),
             .code = "E0454", .message = "\"num_samples\""}};
    run_all(rows, COUNT(rows));
}

Test(data_folders, columns_and_roles_have_other_names)
{
    static const char *const columns[] = {"talk=messages"};
    static const char *const roles[] = {"me=user", "bot=assistant"};
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(
            &test, "a.jsonl",
            "{\"text\":\"no\",\"talk\":[{\"role\":\"me\",\"content\":\"Hi\"},"
            "{\"role\":\"bot\",\"content\":\"Bye\"}]}\n");
    test.entry.columns = columns;
    test.entry.column_count = 1;
    test.entry.roles = roles;
    test.entry.role_count = 2;
    test.options.chat_template = CHAT_NONE;
    char *words = data_case_words(&test);
    cr_expect_str_eq(words, "|[Hi]Bye", "%s", zd_error_get()->what);
    free(words);
    static const char *const broken[] = {"talk"};
    test.entry.columns = broken;
    cr_expect_null(data_case_words(&test));
    cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG);
    zd_error_clear();
    data_case_fini(&test);
}
