#include "data/inspect.h"
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

static char *inspect(struct data_case *test, int64_t count, bool colour)
{
    char *text = NULL;
    size_t bytes;
    struct dataset *dataset = data_case_open(test);
    cr_assert_not_null(dataset, "%s", zd_error_get()->what);
    FILE *out = open_memstream(&text, &bytes);
    cr_assert_eq(
            dataset_inspect(
                    out, dataset, test->request.tokenizer, count, colour),
            ZD_OK);
    fclose(out);
    dataset_close(dataset);
    return text;
}

static const char records[] =
        "{\"prompt\":\"ab\",\"completion\":\"c\"}\n"
        "{\"prompt\":\"\",\"completion\":\"d\\u001be\\u009b\\u20ac\"}\n";

Test(data_inspect, masked_text_is_marked)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.jsonl", records);
    char *text = inspect(&test, 5, false);
    cr_expect_str_eq(
            text,
            "2 documents, 13 tokens, 1 samples of 8 tokens, 76.9 % of the "
            "tokens trained\n"
            "\n=== sample 0: 8 tokens, 6 trained ===\n"
            "[-ab-]c\n--- document ---\n[-d-]\\x1be\\xc2\\x9b\n"
            "\n6 of the 8 targets shown are trained (75.0 %)\n",
            "%s", text);
    free(text);
    data_case_fini(&test);
}

Test(data_inspect, masked_text_is_dimmed_on_a_terminal)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.jsonl", records);
    test.options.packing = false;
    char *text = inspect(&test, 1, true);
    cr_expect(
            strstr(text, "sample 0: 4 tokens, 2 trained ===\n"
                         "\033[2mab\033[22mc\n"),
            "%s", text);
    free(text);
    data_case_fini(&test);
}

Test(data_inspect, without_a_tokenizer_ids_are_shown)
{
    struct data_case test;
    static const uint16_t tokens[] = {5, 6, 256, 7, 8, 9, 10, 11, 12};
    data_case_init(&test, NULL);
    data_case_file(&test, "a.bin", tokens, sizeof tokens);
    test.entry.format = DATA_NANOGPT;
    test.request.tokenizer = NULL;
    char *text = inspect(&test, 1, false);
    cr_expect(
            strstr(text, "[-5 -]6 256 \n--- document ---\n[-7 -]8 9 10 11 12 "),
            "%s", text);
    free(text);
    test.request.tokenizer = test.tokenizer; /* knows 0 to 256 */
    test.request.vocab_size = 2000;
    static const uint16_t more[] = {'a', 1999, 'b', 'c', 'd',
                                    'e', 'f',  'g', 257};
    data_case_file(&test, "a.bin", more, sizeof more);
    text = inspect(&test, 1, false);
    cr_expect(strstr(text, "[-a-]<1999>bcdefg<257>\n"), "%s", text);
    free(text);
    data_case_fini(&test);
}
