#include "data/inspect.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

#define ROW(prompt, completion)                                                \
    "{\"prompt\":\"" prompt "\",\"completion\":\"" completion "\"}\n"

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
            " \"dropped_documents\": 0, \"dropped_tokens\": 0,"
            " \"empty_documents\": 0, \"bad_rows\": 0,"
            " \"special_tokens\": 0, \"rows\": {},"
            " \"first_bad_rows\": [], \"packing\": \"true\","
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

Test(data_inspect, a_page_shows_what_the_data_says_as_text)
{
    struct data_case test;
    json_t *json;
    char *page = NULL;
    size_t bytes;
    data_case_init(&test, NULL);
    data_case_text(
            &test, "a.jsonl",
            ROW("<b>&", "\\u001b</pre><script>x") "{\"prompt\":\"<i>\"}\n" ROW(
                    "nothing", ""));
    test.options.cutoff_len = 40;
    test.options.packing = PACKING_NO;
    test.options.on_bad_row = BAD_ROW_SKIP;
    test.options.add_eos = false;
    struct dataset *dataset = data_case_open(&test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    struct inspect_view view = {.count = 5};
    cr_assert_eq(
            dataset_inspect_json(dataset, test.request.tokenizer, &view, &json),
            ZD_OK);
    FILE *out = open_memstream(&page, &bytes);
    inspect_html(out, json);
    fclose(out);
    cr_expect(strstr(page, "<td>bad_rows<td>1\n"), "%s", page);
    cr_expect(strstr(page, "a.jsonl:2: "), "%s", page);
    cr_expect(strstr(page, "<td>empty_documents<td>1\n"), "%s", page);
    cr_expect(
            strstr(page, "<pre><span class=\"m\">&#60;b&#62;&#38;</span><span "
                         "class=\"t\">\\x1b&#60;/pre&#62;&#60;script&#62;x"),
            "%s", page);
    cr_expect_null(strstr(page, "<script"));
    cr_expect_null(strstr(page, "http"), "the page needs nothing else");
    free(page);
    json_decref(json);
    dataset_close(dataset);
    data_case_fini(&test);
}
