/* test_units.c - numbers as people read them. */
#include "base/units.h"

#include <criterion/criterion.h>

Test(units, numbers_have_plain_digits)
{
    static const struct {
        double value;
        int digits;
        const char *text;
    } cases[] = {
            {120, 1, "100"},
            {3000, 3, "3000"},
            {28000, 2, "28k"},
            {9999.6, 4, "10k"},
            {0.1, 3, "0.1"},
            {3e-7, 1, "0.0000003"},
            {70553706496, 4, "70.55G"},
            {2.5, 3, "2.5"},
            {0, 2, "0"},
            {-31415.9, 3, "-31.4k"},
            {999999, 3, "1M"}};
    char text[UNITS_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_expect_str_eq(
                units_number(cases[i].value, cases[i].digits, text),
                cases[i].text);
}

Test(units, times_and_sizes_have_the_unit_that_suits)
{
    char text[UNITS_TEXT];
    cr_expect_str_eq(units_time(0.0259, 2, text), "0.026 s");
    cr_expect_str_eq(units_time(600, 1, text), "10 min");
    cr_expect_str_eq(units_time(9000, 2, text), "2.5 h");
    cr_expect_str_eq(units_time(86400 * 120.0, 1, text), "100 days");
    cr_expect_str_eq(units_bytes(300, text), "300 bytes");
    cr_expect_str_eq(units_bytes((uint64_t)3 << 29, text), "1.50 GiB");
    cr_expect_str_eq(units_bytes_up(1025, text), "1.01 KiB");
}
