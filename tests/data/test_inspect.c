#include "base/must.h"
#include "data/inspect.h"
#include "tests/data/data_expect.h"

#define ROW(prompt, completion)                                                \
    "{\"prompt\":\"" prompt "\",\"completion\":\"" completion "\"}\n"

Test(data_inspect, a_page_shows_what_the_data_says_as_text)
{
    struct data_case test;
    json_auto_t *json = NULL;
    ZD_FREED char *page = NULL;
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
    struct dataset *dataset = must_open(&test);
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
    dataset_close(dataset);
    data_case_fini(&test);
}
