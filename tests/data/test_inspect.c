#include "data/inspect.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

static char *inspect(struct data_case *test, struct inspect_view view)
{
    char *text = NULL;
    size_t bytes;
    struct dataset *dataset = data_case_open(test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    FILE *out = open_memstream(&text, &bytes);
    cr_assert_eq(
            dataset_inspect(out, dataset, test->request.tokenizer, &view),
            ZD_OK);
    fclose(out);
    dataset_close(dataset);
    return text;
}

#define ROW(prompt, completion)                                                \
    "{\"prompt\":\"" prompt "\",\"completion\":\"" completion "\"}\n"
#define CHAT                                                                   \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"                   \
    "{\"role\":\"assistant\",\"content\":\"Ho\"}]}\n"

static const char records[] = ROW("ab", "c") ROW("", "d\\u001be\\u009b\\u20ac");
static const char long_first[] =
        ROW("abcdefg", "0123456789abcdef") ROW("ab", "c");

/* What is printed, or a part of it. 76.9 % of long_first's tokens are trained:
 * less once it is cut. */
Test(data_inspect, shows_totals_and_samples)
{
    static const struct {
        const char *name, *data;
        bool packing;
        int T;
        double val_split;
        struct inspect_view view;
        const char *want;
    } rows[] = {
            {"masked text is marked",
             records,
             true,
             8,
             0,
             {.count = 5},
             "2 documents, 13 tokens, 1 sample of 8 tokens; 75.0 % of the "
             "targets are trained\n"
             "\n=== sample 0: 8 tokens, 6 trained ===\n"
             "[-ab-]c\n--- document ---\n[-d-]\\x1be\\u{9b}\n"
             "\n6 of the 8 targets shown are trained (75.0 %)\n"},
            {"or dimmed",
             records,
             false,
             8,
             0,
             {.count = 1, .color = true},
             "sample 0: 4 tokens, 2 trained ===\n\033[2mab\033[22mc\n"},
            {"what is cut",
             long_first,
             false,
             8,
             0,
             {.count = 1},
             "2 documents, 28 tokens, 2 samples of 8 tokens; 33.3 % of the "
             "targets are trained\n"
             "data.cutoff_len cuts 1 document; 15 of their 24 tokens are left "
             "out\n\n"},
            {"what packing cuts",
             long_first,
             true,
             8,
             0,
             {.count = 1},
             "packing cuts 1 of 1 documents; 15 of 17 trained tokens are in a "
             "sample without the beginning of their document\n\n"},
            {"what val_split takes",
             records,
             false,
             8,
             0.5,
             {.count = 1},
             "2 documents, 13 tokens, 1 sample of 8 tokens; 50.0 % of the "
             "targets are trained\n"
             "data.val_split keeps 1 of the 2 samples for evaluation\n\n"},
            {"the chat template",
             CHAT,
             false,
             64,
             0,
             {.count = 1},
             "\nchat template chatml\n"},
            {"a line for each id",
             ROW("a", "\\n\\u001b\\\\") ROW("b", "c"),
             true,
             7,
             0,
             {.count = 1, .ids = true},
             "===\n      97 - a\n      10 + \\n\n      27 + \\x1b\n"
             "      92 + \\\\\n     256 + \n--- document ---\n      98 - b\n"
             "      99 + c\n     256 + \n\n"},
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct data_case test;
        data_case_init(&test, rows[r].data[2] == 'm' ? "qwen2" : NULL);
        data_case_text(&test, "a.jsonl", rows[r].data);
        test.options.packing = rows[r].packing;
        test.options.cutoff_len = rows[r].T;
        test.request.to = 1 - rows[r].val_split;
        char *text = inspect(&test, rows[r].view);
        cr_expect(strstr(text, rows[r].want), "%s: %s", rows[r].name, text);
        free(text);
        data_case_fini(&test);
    }
}

Test(data_inspect, without_a_tokenizer_ids_are_shown)
{
    struct data_case test;
    static const uint16_t tokens[] = {5, 6, 256, 7, 8, 9, 10, 11, 12};
    data_case_init(&test, NULL);
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    test.request.tokenizer = NULL;
    char *text = inspect(&test, (struct inspect_view){.count = 1});
    cr_expect(
            strstr(text, "[-5 -]6 256 \n--- document ---\n[-7 -]8 9 10 11 12 "),
            "%s", text);
    free(text);
    test.request.tokenizer = test.tokenizer; /* has 0 to 256 */
    test.request.vocab_size = 2000;
    static const uint16_t more[] = {'a', 1999, 'b', 'c', 'd',
                                    'e', 'f',  'g', 257};
    data_case_file(&test, "a.bin", more, sizeof more);
    text = inspect(&test, (struct inspect_view){.count = 1});
    cr_expect(strstr(text, "[-a-]<1999>bcdefg<257>\n"), "%s", text);
    free(text);
    data_case_fini(&test);
}

Test(data_inspect, json_has_texts_and_ids)
{
    struct data_case test;
    json_t *json, *want;
    static const char expected[] =
            "{\"documents\": 2, \"tokens\": 10, \"samples\": 1, "
            "\"held_out_samples\": 0, \"cutoff_len\": 7,"
            " \"trained_share\": 0.8571428571428571, \"cut_documents\": 0, "
            "\"cut_tokens\": 0,"
            " \"lost_tokens\": 0, \"split_documents\": 0,"
            " \"split_targets\": 0.0, \"chat_template\": null,"
            " \"tokenizer\": \"bytes, 256 is end of text\","
            " \"shown\": [{\"sample\": 0, \"tokens\": 7, \"trained\": 6,"
            " \"pieces\": ["
            "{\"text\": \"a\", \"trained\": false, \"ids\": [97]},"
            "{\"text\": \"\\n\\u001b\\u00e9\", \"trained\": true,"
            " \"ids\": [10, 27, 195, 169, 256]},"
            "{\"text\": \"b\", \"trained\": false, \"begins_document\": true,"
            " \"ids\": [98]},"
            "{\"text\": \"\\ufffd\", \"trained\": true, \"ids\": [195]}]}]}";
    data_case_init(&test, NULL);
    data_case_text(
            &test, "a.jsonl",
            ROW("a", "\\n\\u001b\\u00e9") ROW("b", "\\u00e9"));
    test.options.cutoff_len = 7;
    struct dataset *dataset = data_case_open(&test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    struct inspect_view view = {.count = 5, .ids = true};
    cr_assert_eq(
            dataset_inspect_json(dataset, test.request.tokenizer, &view, &json),
            ZD_OK);
    cr_assert_eq(
            json_parse(expected, strlen(expected), "e", ZD_ERR_BUG, &want),
            ZD_OK);
    char *text = json_dumps(json, JSON_SORT_KEYS);
    cr_expect(json_equal(json, want), "%s", text);
    free(text);
    json_decref(json);
    json_decref(want);
    dataset_close(dataset);
    data_case_fini(&test);
}
