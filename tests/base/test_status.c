#include "base/must.h"
#include "base/status.h"

#include <criterion/criterion.h>
#include <pthread.h>

Test(status, exit_codes_follow_sysexits)
{
    static const struct {
        enum zd_status status;
        int code;
    } rows[] = {{ZD_OK, 0},           {ZD_ERR_USAGE, 64},
                {ZD_ERR_DATA, 65},    {ZD_ERR_NO_INPUT, 66},
                {ZD_ERR_UNFIT, 69},   {ZD_ERR_DEVICE, 69},
                {ZD_ERR_MEMORY, 69},  {ZD_ERR_BUG, 70},
                {ZD_ERR_CREATE, 73},  {ZD_ERR_IO, 74},
                {ZD_ERR_STOPPED, 75}, {ZD_ERR_PEER, 75},
                {ZD_ERR_DENIED, 77},  {ZD_ERR_CONFIG, 78},
                {ZD_ERR_NUMERICS, 79}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect_eq(zd_exit_code(rows[i].status), rows[i].code);
}

Test(status, the_first_failure_is_kept)
{
    cr_expect_eq(ZD_BAD("E0101", "first %d", 1), ZD_ERR_DATA);
    cr_expect_eq(ZD_FAIL(ZD_ERR_IO, "E0102", "second"), ZD_ERR_IO);
    cr_expect_eq(zd_error_get()->status, ZD_ERR_DATA);
    cr_expect_str_eq(zd_error_get()->what, "first 1");
    zd_error_clear();
    cr_expect_eq(zd_error_get()->status, ZD_OK);
}

Test(status, prints_one_error_line_and_a_line_of_help_each)
{
    ZD_FREED char *text = NULL;
    size_t bytes;
    ZD_FAIL(ZD_ERR_CONFIG, "E0203", "unknown key `%s`", "lr\x1b[31m");
    zd_fail_where("job.toml:%d:%d", 31, 1);
    zd_fail_where("kept from the first");
    zd_fail_help("do this\nor that");
    FILE *stream = open_memstream(&text, &bytes);
    zd_error_print(stream, zd_error_get());
    fclose(stream);
    cr_expect_str_eq(
            text, "error[E0203]: unknown key `lr\\x1b[31m`\n"
                  "  --> job.toml:31:1\n"
                  "  = help: do this\n"
                  "  = help: or that\n");
}

static void *fail_elsewhere(void *arg)
{
    ZD_FAIL(ZD_ERR_IO, "E0102", "in the other thread");
    return NULL;
}

Test(status, a_record_belongs_to_its_thread)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    cr_expect_eq(zd_error_get()->status, ZD_OK);
}
