/* Chat templates: the text they make, its ids, and which of it is trained. */
#include "tests/data/data_case.h"

#include <criterion/criterion.h>


static const char two_turns[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi there\"},"
        "{\"role\":\"assistant\",\"content\":\"The answer.\"}]}\n";

struct row {
    const char *name, *fixture;
    enum chat_template chat;
    enum train_on train_on;
    const char *content, *expected;
};

static void check_rows(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct data_case test;
        data_case_init(&test, rows[i].fixture);
        data_case_text(&test, "a.jsonl", rows[i].content);
        test.options.chat_template = rows[i].chat;
        test.options.train_on = rows[i].train_on;
        char *words = data_case_words(&test);
        cr_expect(words != NULL, "%s: %s", rows[i].name, zd_error_get()->what);
        if (words)
            cr_expect_str_eq(
                    words, rows[i].expected, "%s: %s", rows[i].name, words);
        free(words);
        data_case_fini(&test);
    }
}

/* 499 <|im_start|>, 500 <|im_end|>; 490 <|begin_of_text|>, 492, 493 header,
 * 494 <|eot_id|> */
Test(data_chat, templates_make_the_known_text)
{
    static const struct row rows[] = {
            {"chatml", "qwen2", CHAT_CHATML, TRAIN_ON_ASSISTANT, two_turns,
             "|[<499>user\nHi there<500>\n<499>assistant\n]The answer.<500>"
             "[\n]"},
            {"chatml by itself", "qwen2", CHAT_AUTO, TRAIN_ON_ASSISTANT,
             two_turns,
             "|[<499>user\nHi there<500>\n<499>assistant\n]The answer.<500>"
             "[\n]"},
            {"all", "qwen2", CHAT_CHATML, TRAIN_ON_ALL, two_turns,
             "|[<499>]user\nHi there<500>\n<499>assistant\nThe answer.<500>"
             "\n"},
            {"qwen", "qwen2", CHAT_QWEN, TRAIN_ON_ASSISTANT, two_turns,
             "|[<499>system\nYou are a helpful assistant.<500>\n<499>user\n"
             "Hi there<500>\n<499>assistant\n]The answer.<500>[\n]"},
            {"qwen with a system message", "qwen2", CHAT_QWEN,
             TRAIN_ON_ASSISTANT,
             "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},"
             "{\"role\":\"assistant\",\"content\":\"A\"}]}\n",
             "|[<499>system\nS<500>\n<499>assistant\n]A<500>[\n]"},
            {"llama3", "llama3", CHAT_LLAMA3, TRAIN_ON_ASSISTANT, two_turns,
             "|[<490><492>user<493>\n\nHi there<494><492>assistant<493>\n\n]"
             "The answer.<494>"},
            {"llama3 by itself", "llama3", CHAT_AUTO, TRAIN_ON_ALL, two_turns,
             "|[<490>]<492>user<493>\n\nHi there<494><492>assistant<493>\n\n"
             "The answer.<494>"},
            {"none", "qwen2", CHAT_NONE, TRAIN_ON_ASSISTANT, two_turns,
             "|[Hi there]The answer."},
            {"none after a BOS", "llama3", CHAT_NONE, TRAIN_ON_ALL, two_turns,
             "|[<490>]Hi thereThe answer."},
            {"markers as plain text", NULL, CHAT_CHATML, TRAIN_ON_ASSISTANT,
             two_turns,
             "|[<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n]"
             "The answer.<|im_end|>[\n]"},
            {"llama3 as plain text", NULL, CHAT_LLAMA3, TRAIN_ON_ASSISTANT,
             "{\"messages\":[{\"role\":\"assistant\",\"content\":\"A\"}]}",
             "|[<|begin_of_text|><|start_header_id|>assistant<|end_header_id|>"
             "\n\n]A<|eot_id|>"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_chat, only_llama3_trims)
{
    static const char spaced[] =
            "{\"messages\":[{\"role\":\"user\",\"content\":\" \\u00a0a \\n\"},"
            "{\"role\":\"assistant\",\"content\":\"\\u3000\\tb c \"}]}\n";
    static const struct row rows[] = {
            {"llama3", "llama3", CHAT_LLAMA3, TRAIN_ON_ASSISTANT, spaced,
             "|[<490><492>user<493>\n\na<494><492>assistant<493>\n\n]b c<494>"},
            {"chatml", NULL, CHAT_CHATML, TRAIN_ON_ASSISTANT, spaced,
             "|[<|im_start|>user\n \xc2\xa0"
             "a \n<|im_end|>\n<|im_start|>assistant\n]\xe3\x80\x80\tb c "
             "<|im_end|>[\n]"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_chat, special_tokens_in_a_message_are_ordinary_text)
{
    static const char forged[] =
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a<|im_end|>b\"},"
            "{\"role\":\"assistant\",\"content\":\"<|im_start|>\"}]}\n";
    static const struct row rows[] = {
            {"chatml", "qwen2", CHAT_CHATML, TRAIN_ON_ASSISTANT, forged,
             "|[<499>user\na<|im_end|>b<500>\n<499>assistant\n]<|im_start|>"
             "<500>[\n]"},
            {"none", "qwen2", CHAT_NONE, TRAIN_ON_ASSISTANT, forged,
             "|[a<|im_end|>b]<|im_start|>"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_chat, every_turn_of_the_assistant_is_trained)
{
    static const struct row rows[] = {
            {"two", NULL, CHAT_NONE, TRAIN_ON_ASSISTANT,
             "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
             "{\"role\":\"user\",\"content\":\"u\"},"
             "{\"role\":\"assistant\",\"content\":\"a\"},"
             "{\"role\":\"tool\",\"content\":\"t\"},"
             "{\"role\":\"assistant\",\"content\":\"b\"}]}\n"
             "{\"messages\":[{\"role\":\"assistant\",\"content\":\"xy\"}]}\n",
             "|[su]a[t]b|[x]y"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_chat, sharegpt_names_roles_and_keys_otherwise)
{
    static const char turns[] =
            "{\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},"
            "{\"from\":\"gpt\",\"value\":\"a\"}]}\n";
    static const char mixed[] =
            "{\"messages\":[{\"from\":\"human\",\"value\":\"u\"},"
            "{\"from\":\"gpt\",\"value\":\"a\"}]}\n";
    static const struct row rows[] = {
            {"sharegpt", NULL, CHAT_CHATML, TRAIN_ON_ASSISTANT, turns,
             "|[<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n]"
             "a<|im_end|>[\n]"},
            {"under messages", NULL, CHAT_NONE, TRAIN_ON_ASSISTANT, mixed,
             "|[u]a"},
            {"a system beside it", NULL, CHAT_CHATML, TRAIN_ON_ASSISTANT,
             "{\"system\":\"s\",\"conversations\":[{\"from\":\"gpt\","
             "\"value\":\"a\"}]}\n",
             "|[<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n]"
             "a<|im_end|>[\n]"},
            {"a system beside messages", NULL, CHAT_NONE, TRAIN_ON_ASSISTANT,
             "{\"system\":\"s\",\"messages\":[{\"role\":\"assistant\","
             "\"content\":\"a\"}]}\n",
             "|[s]a"},
            {"no system", NULL, CHAT_NONE, TRAIN_ON_ASSISTANT,
             "{\"system\":\"\",\"tools\":null,\"weight\":1,"
             "\"conversations\":[{\"from\":\"human\",\"value\":\"u\"},"
             "{\"from\":\"gpt\",\"value\":\"a\"}]}\n",
             "|[u]a"},
    };
    check_rows(rows, COUNT(rows));
}

/* OpenAI's form: a turn to read and not to learn. */
Test(data_chat, a_weight_of_0_masks_a_message)
{
    static const char turns[] =
            "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},"
            "{\"role\":\"assistant\",\"content\":\"bad\",\"weight\":0},"
            "{\"role\":\"user\",\"content\":\"v\"},"
            "{\"role\":\"assistant\",\"content\":\"good\",\"weight\":1}]}"
            "\n";
    static const struct row rows[] = {
            {"assistant", NULL, CHAT_NONE, TRAIN_ON_ASSISTANT, turns,
             "|[ubadv]good"},
            {"all", NULL, CHAT_NONE, TRAIN_ON_ALL, turns, "|[ubad]vgood"},
            {"chatml", NULL, CHAT_CHATML, TRAIN_ON_ALL,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"u\"},"
             "{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}]}\n",
             "|[<]|im_start|>user\nu<|im_end|>\n[<|im_start|>assistant\na"
             "<|im_end|>\n]"},
            {"llama3", "llama3", CHAT_LLAMA3, TRAIN_ON_ASSISTANT,
             "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\","
             "\"weight\":0},{\"role\":\"assistant\",\"content\":\"b\"}]}\n",
             "|[<490><492>assistant<493>\n\na<494><492>assistant<493>\n\n]b"
             "<494>"},
    };
    check_rows(rows, COUNT(rows));
}

Test(data_chat, keys_can_be_named)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(
            &test, "a.jsonl",
            "{\"dialog\":[{\"who\":\"user\",\"says\":\"u\"},"
            "{\"who\":\"assistant\",\"says\":\"a\"}]}\n");
    test.options.chat_template = CHAT_NONE;
    test.entry.messages_field = "dialog";
    test.entry.role_field = "who";
    test.entry.content_field = "says";
    char *words = data_case_words(&test);
    cr_expect_str_eq(words, "|[u]a");
    free(words);
    data_case_fini(&test);
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

Test(data_chat, what_has_no_template_is_refused)
{
    struct data_case test;
    data_case_init(&test, NULL);
    data_case_text(&test, "a.jsonl", two_turns);
    cr_expect_null(data_case_words(&test)); /* bytes have no markers */
    cr_expect_eq(zd_error_get()->status, ZD_ERR_CONFIG);
    data_case_fini(&test);
}
