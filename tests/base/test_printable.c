#include "base/must.h"
#include "base/printable.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char *shown(const char *text)
{
    static char out[200];
    printable_copy(out, sizeof out, text, strlen(text), "\n");
    return out;
}

Test(printable, text_stays)
{
    cr_expect_str_eq(shown("plain, ä€😀\n"), "plain, ä€😀\n");
}

Test(printable, controls_of_both_sets_are_escaped)
{
    cr_expect_str_eq(shown("a\x1b[31mb\x7f"), "a\\x1b[31mb\\x7f");
    cr_expect_str_eq(
            shown("a\xc2\x9b"
                  "31m"),
            "a\\u{9b}31m");
    cr_expect_str_eq(
            shown("\xc2\x80\xc2\x9f\xc2\xa0"), "\\u{80}\\u{9f}\xc2\xa0");
    cr_expect_str_eq(shown("\t"), "\\x09");
}

Test(printable, marks_that_turn_text_are_escaped)
{
    cr_expect_str_eq(
            shown("a\xe2\x80\xae"
                  "b"),
            "a\\u{202e}b");
    cr_expect_str_eq(shown("\xe2\x81\xa6\xe2\x80\xa8"), "\\u{2066}\\u{2028}");
}

Test(printable, invalid_utf8_is_escaped)
{
    cr_expect_str_eq(
            shown("\x9b"
                  "31m"),
            "\\x9b31m");
    cr_expect_str_eq(
            shown("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80");
    cr_expect_str_eq(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    cr_expect_str_eq(shown("a\xe2\x82"), "a\\xe2\\x82");
}

Test(printable, a_copy_is_cut_between_characters)
{
    char out[6];
    printable_copy(out, sizeof out, "ab\x1b", 3, "");
    cr_expect_str_eq(out, "ab");
    printable_copy(out, sizeof out, "abcd€", 7, "");
    cr_expect_str_eq(out, "abcd");
}

/* What a terminal gets of `text` in pieces of `piece` bytes. */
static void expect_pieces(const char *text, size_t piece, const char *expected)
{
    ZD_FREED char *written = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&written, &bytes);
    struct printable to = {.out = stream, .is_terminal = true};
    for (size_t at = 0; at < strlen(text); at += piece)
        printable_put(
                &to, text + at,
                strlen(text) - at < piece ? strlen(text) - at : piece);
    printable_end(&to);
    fclose(stream);
    cr_expect_str_eq(written, expected, "pieces of %zu: %s", piece, written);
}

Test(printable, pieces_are_put_together)
{
    for (size_t piece = 1; piece < 16; piece++) {
        expect_pieces(
                "a\n\t€\x1b]0;x\x07\xc2\x9b"
                "1m😀\xe2\x82",
                piece, "a\n\t€\\x1b]0;x\\x07\\u{9b}1m😀\\xe2\\x82");
        expect_pieces(
                "\xe2\x82x\xf0\x9f\x98", piece, "\\xe2\\x82x\\xf0\\x9f\\x98");
    }
}

Test(printable, a_file_gets_the_bytes)
{
    char text[8] = {0};
    FILE *file = tmpfile();
    struct printable to = printable_to(file);
    printable_put(&to, "\x1b\xc2", 2);
    printable_end(&to);
    rewind(file);
    cr_expect_eq(fread(text, 1, sizeof text, file), 2);
    cr_expect_str_eq(text, "\x1b\xc2");
    fclose(file);
}
