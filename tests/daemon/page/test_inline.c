/* The page, and the page with a run's numbers inside. */
#include "base/must.h"
#include "daemon/page/page.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char open_tag[] =
        "<script id=\"zerod-data\" type=\"application/json\">";

static size_t occurrences(const char *text, const char *word)
{
    size_t count = 0;
    while ((text = strstr(text, word))) {
        count++;
        text++;
    }
    return count;
}

static char *inlined(const json_t *data)
{
    size_t bytes = 0;
    char *html = page_inline(data, &bytes);
    cr_assert_eq(strlen(html), bytes);
    return html;
}

/* What a browser takes for the content of the element. */
static json_t *content(const char *html)
{
    const char *begin = strstr(html, open_tag) + strlen(open_tag);
    const char *end = strstr(begin, "</script");
    json_t *json = NULL;
    cr_assert_eq(
            json_parse(
                    begin, (size_t)(end - begin), "data", ZD_ERR_DATA, &json),
            ZD_OK);
    return json;
}

Test(page_inline, what_goes_in_comes_out_whatever_it_holds)
{
    json_auto_t *data = json_pack(
            "{s:s, s:s, s:s, s:[s, s], s:f}", "script",
            "</script><script>alert(1)</script>", "comment", "<!-- <script",
            "lines",
            "a\xe2\x80\xa8"
            "b\xe2\x80\xa9"
            "c\xe2\x80\xa7",
            "log", "tab\tand \"quotes\" \\u003c", "<", "number", 2.5);
    ZD_FREED char *html = inlined(data);
    json_auto_t *back = content(html);
    cr_assert(json_equal(data, back));
}

Test(page_inline, no_text_ends_the_element_or_opens_another)
{
    json_auto_t *data = json_pack("{s:s}", "</ScRiPt>", "<img src=x> <!-- ]]>");
    ZD_FREED char *html = inlined(data);
    cr_assert_eq(occurrences(html, "<"), occurrences(page_html, "<"));
}

Test(page_inline, the_page_around_it_is_unchanged)
{
    json_auto_t *data = json_pack("{s:i}", "a", 1);
    ZD_FREED char *html = inlined(data);
    const char *place = strstr(page_html, open_tag) + strlen(open_tag);
    size_t before = (size_t)(place - page_html);
    cr_assert_eq(memcmp(html, page_html, before), 0);
    cr_assert_eq(strncmp(html + before, "{\"a\":1}", 7), 0);
    cr_assert_str_eq(html + before + 7, place);
}

Test(page, it_has_one_empty_place_for_data_and_ends_with_a_nul)
{
    cr_assert_eq(strlen(page_html), page_html_bytes);
    cr_assert_eq(occurrences(page_html, open_tag), 1);
    cr_assert_eq(
            strncmp(strstr(page_html, open_tag) + strlen(open_tag), "</script>",
                    9),
            0);
}

Test(page, it_is_at_most_60_kib)
{
    cr_assert_leq(page_html_bytes, 60 * 1024);
}

/* The page asks no one but the job, and inserts nothing as HTML. */
Test(page, it_names_no_other_host_and_no_way_to_insert_html)
{
    static const char *const words[] = {
            "http:",     "https:",       "//www",
            "src=",      "@import",      "innerHTML",
            "outerHTML", "eval(",        "document.write",
            "url(",      "new Function", "insertAdjacentHTML"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_assert_null(strstr(page_html, words[i]), "%s", words[i]);
    cr_assert(strstr(page_html, "default-src 'none'; "));
    cr_assert(strstr(page_html, "connect-src 'self'; "));
}
