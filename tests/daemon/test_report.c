#include "daemon/report.h"

#include <criterion/criterion.h>
#include <string.h>

Test(report, durations_and_counts_are_short)
{
    char text[32];
    static const struct {
        double seconds;
        const char *want;
    } times[] = {
            {0.04, "0.0s"},
            {12.34, "12.3s"},
            {200, "3m20s"},
            {3720, "1h02m"},
            {1e99, "?"}};
    static const struct {
        double value;
        const char *want;
    } counts[] = {
            {0, "0.0"},
            {42, "42"},
            {12345, "12.3k"},
            {1235814400, "1.24G"},
            {999999, "1M"}};
    for (size_t i = 0; i < 5; i++) {
        report_duration(times[i].seconds, text, sizeof text);
        cr_expect_str_eq(text, times[i].want);
        report_short(counts[i].value, text, sizeof text);
        cr_expect_str_eq(text, counts[i].want);
    }
}

Test(report, the_bar_fits_every_width_and_sends_no_escape_codes)
{
    struct train_step_report step = {
            .step = 123456,
            .max_steps = 9999999,
            .loss = 1234.5678,
            .learning_rate = 1e-5,
            .tokens_per_second = 123456};
    char bar[512];
    for (int columns = 39; columns <= 200; columns++) {
        report_bar(&step, 123456, columns, bar, sizeof bar);
        cr_expect(strlen(bar) <= (size_t)columns, "%d: %s", columns, bar);
        cr_expect(strstr(bar, "123456/9999999"));
        cr_expect_null(strchr(bar, 0x1b));
    }
    cr_expect(strstr(bar, "loss") && strstr(bar, "eta") && bar[0] == '[');
}
