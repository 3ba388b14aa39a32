#include "base/log.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

#include <jansson.h>
#include <sys/stat.h>

TestSuite(log, IN_SCRATCH);

Test(log, a_file_gets_every_rank_with_control_bytes_shown)
{
    ZD_FREED char *text = NULL;
    zd_log_configure(&(struct zd_log_options){.level = ZD_LOG_INFO, .rank = 3});
    MUST(zd_log_open(scratch_path(&scratch, "log")));
    zd_log_debug("below the level");
    zd_log_info("red \x1b[31m %d", 7);
    zd_log_info("as one byte \x9b"
                "31m, as two \xc2\x9b"
                "31m, turned \xe2\x80\xae");
    zd_log_open(NULL);
    MUST(fs_read_file(scratch.path, 1000, &text, NULL));
    cr_expect_null(strstr(text, "below"));
    cr_expect_not_null(strstr(text, "[rank 3] red ?[31m 7\n"));
    cr_expect_not_null(
            strstr(text, "as one byte ?31m, as two ?31m, turned ?\n"));
}

Test(log, json_lines_are_json)
{
    ZD_FREED char *text = NULL;
    zd_log_configure(&(struct zd_log_options){
            .level = ZD_LOG_INFO, .rank = 0, .json = true});
    MUST(zd_log_open(scratch_path(&scratch, "log")));
    zd_log_warning("quotes \" and \\");
    zd_log_open(NULL);
    MUST(fs_read_file(scratch.path, 1000, &text, NULL));
    json_auto_t *line = json_loads(text, 0, NULL);
    cr_assert_not_null(line);
    cr_expect_str_eq(
            json_string_value(json_object_get(line, "level")), "warning");
    cr_expect_str_eq(
            json_string_value(json_object_get(line, "message")),
            "quotes \" and \\");
}

Test(log, a_place_that_cannot_be_written_is_an_error_at_once)
{
    cr_expect_eq(zd_log_open(scratch.dir), ZD_ERR_CREATE);
    zd_error_clear();
    cr_assert_eq(mkfifo(scratch_path(&scratch, "fifo"), 0600), 0);
    cr_expect_eq(zd_log_open(scratch.path), ZD_ERR_CREATE);
}
