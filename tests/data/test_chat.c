/* Chat templates: the text they make, its ids, and which of it is trained. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>

static const char two_turns[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi there\"},"
        "{\"role\":\"assistant\",\"content\":\"The answer.\"}]}\n";

Test(data_chat, is_laid_out_and_masked_as_its_template_says)
{
    data_rows_run("chat.txt", 25);
}

/* Ids from Hugging Face tokenizers of the template's text as a whole. */
Test(data_chat, ids_are_those_of_the_whole_text)
{
    static const int32_t qwen[] = {499, 84,  82,  265, 198, 39,  72,
                                   258, 271, 500, 198, 499, 484, 82,
                                   72,  325, 64,  291, 198, 303, 259,
                                   77,  82,  86,  265, 13,  500, 198};
    static const int32_t llama[] = {490, 492, 84,  82,  265, 493, 438, 39,
                                    72,  258, 271, 494, 492, 64,  82,  82,
                                    72,  325, 64,  291, 493, 438, 303, 259,
                                    77,  82,  86,  265, 13,  494};
    static const struct {
        const char *fixture;
        const int32_t *ids;
        size_t count;
    } rows[] = {{"qwen2", qwen, COUNT(qwen)}, {"llama3", llama, COUNT(llama)}};
    for (size_t r = 0; r < COUNT(rows); r++) {
        struct data_case test;
        struct corpus corpus;
        data_case_init(&test, rows[r].fixture);
        data_case_text(&test, "a.jsonl", two_turns);
        cr_assert_eq(
                corpus_open(&test.request, &test.entry, true, &corpus), ZD_OK);
        cr_assert_eq(corpus.count, rows[r].count);
        for (size_t i = 0; i < rows[r].count; i++)
            cr_expect_eq(
                    corpus.cache.words[i] & WORD_ID, (uint32_t)rows[r].ids[i]);
        corpus_close(&corpus);
        data_case_fini(&test);
    }
}
