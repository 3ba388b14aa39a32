#include "base/file/yaml.h"
#include "base/must.h"
#include "tests/support/scratch_suite.h"

#include <stdio.h>

TestSuite(yaml, IN_SCRATCH);

/* libyaml takes minutes for each of these. */
Test(yaml, what_takes_the_square_of_its_length_is_refused, .timeout = 20)
{
    static const char *const pieces[][2] = {
            {"[", ""}, {"{a: ", ""}, {"- &a", " x\n"}};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        ZD_FREED char *text = NULL;
        size_t bytes;
        json_t *out = NULL;
        FILE *file = open_memstream(&text, &bytes);
        for (int k = 0; k < 300000; k++)
            if (*pieces[i][1])
                fprintf(file, "%s%d%s", pieces[i][0], k, pieces[i][1]);
            else
                fputs(pieces[i][0], file);
        fclose(file);
        cr_expect_eq(yaml_parse(text, bytes, "README.md", &out), ZD_ERR_DATA);
        cr_expect_not_null(
                strstr(zd_error_get()->what, "too deep, or has too many"));
        zd_error_clear();
    }
}
