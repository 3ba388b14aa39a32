#include "base/text_stream.h"

#include "base/must.h"

#include <criterion/criterion.h>
#include <stdlib.h>

Test(text_stream, holds_all_that_is_written)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    FILE *stream = text_stream_open(&text, &bytes);
    for (int i = 0; i < 20000; i++)
        fprintf(stream, "%05d\n", i);
    fputc('\0', stream);
    fputs("end", stream);
    cr_assert_eq(fclose(stream), 0);
    cr_assert_eq(bytes, 20000 * 6 + 4);
    for (int i = 0; i < 20000; i++)
        cr_assert_eq(atoi(text + 6 * i), i);
    cr_expect_str_eq(text + bytes - 3, "end");
}

Test(text_stream, is_an_empty_text_where_nothing_is_written)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    fclose(text_stream_open(&text, &bytes));
    cr_expect_str_eq(text, "");
    cr_expect_eq(bytes, 0);
}

Test(must, returns_the_value)
{
    int there;
    cr_expect_eq(zd_must(&there), &there);
}

Test(must, ends_the_process_without_a_value, .exit_code = 69)
{
    zd_must(NULL);
}
