#include "base/rfc3339.h"

#include <criterion/criterion.h>

Test(rfc3339, moments_are_read)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {
            {"1970-01-01T00:00:00Z", 0},
            {"2026-11-22T08:00:00Z", 1795334400},
            {"2026-11-22 09:00:00+01:00", 1795334400},
            {"2026-11-22t02:30:00-05:30", 1795334400},
            {"2024-02-29T23:59:60z", 1709251200},
            {"2026-11-22T08:00:00.25Z", 1795334400.25},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double seconds = -1;
        cr_expect(rfc3339_parse(cases[i].text, &seconds), "%s", cases[i].text);
        cr_expect_eq(
                seconds, cases[i].seconds, "%s: %f", cases[i].text, seconds);
    }
}

Test(rfc3339, invalid_moments_are_refused)
{
    static const char *const cases[] = {
            "",
            "tomorrow",
            "2026-11-22",
            "2026-11-22T08:00:00",
            "2026-11-22T08:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-11-22T24:00:00Z",
            "2026-11-22T08:00:00+1:00",
            "2026-11-22T08:00:00Z ",
            "2026-11-22T08:00:00.Z",
            "1969-12-31T00:00:00Z",
            "26-11-22T08:00:00Z",
            "12345"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double seconds;
        cr_expect(!rfc3339_parse(cases[i], &seconds), "%s", cases[i]);
    }
}

Test(rfc3339, what_is_printed_reads_back)
{
    char text[RFC3339_BYTES];
    double seconds;
    rfc3339_print(1795334400, text);
    cr_expect_str_eq(text, "2026-11-22T08:00:00Z");
    cr_assert(rfc3339_parse(text, &seconds));
    cr_expect_eq(seconds, 1795334400);
}
