#include "base/text_buffer.h"

#include <criterion/criterion.h>

Test(text_buffer, a_word_is_what_a_shell_would_read)
{
    static const char *const rows[][2] = {
            {"out/hf", "out/hf"}, {"a b/hf", "'a b/hf'"},
            {"", "''"},           {"it's", "'it'\\''s'"},
            {"'", "''\\'''"},     {"$(rm -r x)", "'$(rm -r x)'"},
            {"~", "'~'"},         {"\xc3\xa9", "'\xc3\xa9'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[64] = "";
        struct text_buffer text = {.out = line, .bytes = sizeof line};
        text_buffer_add_word(&text, rows[i][0]);
        cr_expect_str_eq(line, rows[i][1]);
    }
}

Test(text_buffer, text_that_does_not_fit_is_left_out)
{
    char line[6] = "";
    struct text_buffer text = {.out = line, .bytes = sizeof line};
    text_buffer_add_word(&text, "a long word");
    cr_expect_str_eq(line, "'a lo");
    text_buffer_add_word(&text, "b");
    cr_expect_str_eq(line, "'a lo");
}
