#include "daemon/report/report.h"

#include <criterion/criterion.h>
#include <string.h>

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

Test(report, an_offloaded_run_says_what_it_waited_for)
{
    char line[320];
    struct train_offload_report report = {
            .active = true,
            .engine =
                    {.down_bytes = 6200000000u,
                     .up_bytes = 6200000000u,
                     .down_seconds = 0.8,
                     .up_seconds = 0.4,
                     .host_seconds = 2.0,
                     .worker_seconds = 4.0,
                     .wait_down_seconds = 0.02,
                     .wait_host_seconds = 0.6},
    };
    report_offload_line(&report, 2, line, sizeof line);
    cr_expect_str_eq(
            line,
            "down 3.1GB in 400.0 ms  host step 1000.0 ms  up 3.1GB in 200.0 ms"
            "  waited 310.0 ms (down 10.0, host step 300.0, up 0.0)");
    const char *advice = report_offload_advice(&report, 2, 1.5);
    cr_expect(advice && strstr(advice, "update on the host"));
    cr_expect_null(report_offload_advice(&report, 2, 4.0));
    /* as in a run that was measured: the copy is quick, the wait long */
    report.engine.disk_read_bytes = 300000000;
    report.engine.disk_written_bytes = 320000000;
    report.engine.wait_disk_seconds = 0.7;
    report.engine.up_seconds = 0.00002;
    cr_assert(report_offload_line(&report, 2, line, sizeof line));
    cr_expect_str_eq(
            line,
            "down 3.1GB in 400.0 ms  host step 1000.0 ms  up 3.1GB in 10 us  "
            "disk 150MB read, 160MB written  waited 660.0 ms (down 10.0, host "
            "step 300.0, disk 350.0, up 0.0)");
    cr_expect(strstr(report_offload_advice(&report, 2, 1.5), "disk"));
    report.engine.wait_up_seconds = 0.8;
    cr_expect(
            strstr(report_offload_advice(&report, 2, 1.5), "reach the device"));
    cr_expect(report_offload_line(&report, 2, line, 20));
    cr_expect(strlen(line) < 20);
}

Test(report, a_run_that_moved_nothing_has_no_line_of_it)
{
    char line[320];
    struct train_offload_report report = {.active = true};
    cr_expect_not(report_offload_line(&report, 10, line, sizeof line));
    cr_expect_str_empty(line);
    report.activations.down_bytes = 1000;
    cr_expect(report_offload_line(&report, 10, line, sizeof line));
    cr_expect(strstr(line, "activations 100B"));
}
